"""Fully sharded data parallel by annotation."""

from collections.abc import Callable
from typing import Any

import torch

from torch_pjrt import spmd

from ..distributed.fsdp.wrap import recursive_wrap
from ..distributed.spmd import xla_sharding as xs

__all__ = ["SpmdFullyShardedDataParallel", "recursive_wrap"]


class SpmdFullyShardedDataParallel(torch.nn.Module):
    """Weights are cut over the mesh's axis "fsdp"; so is the first tensor of the output."""

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        mesh: Any = None,
        shard_output: Callable[[Any, Any], None] | None = None,
        auto_wrap_policy: Callable[..., Any] | None = None,
        auto_wrapper_callable: Callable[..., Any] | None = None,
        extra_data_axis: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if isinstance(module, SpmdFullyShardedDataParallel):
            raise RuntimeError("Cannot wrap a module that is already wrapped with FSDPv2")
        mesh = xs.get_global_mesh() if mesh is None else mesh
        if mesh is None:
            raise ValueError("Mesh and global mesh should not be both None.")
        if "fsdp" not in mesh.ours.axis_names:
            raise ValueError("The mesh must have an axis named 'fsdp'.")
        if extra_data_axis is not None and extra_data_axis not in mesh.ours.axis_names:
            raise ValueError(f"The provided {extra_data_axis} is not in the mesh axis names.")
        self._mesh, self._extra = mesh, extra_data_axis
        self._orig_module = self._wrapped(module, auto_wrap_policy, auto_wrapper_callable)
        spmd.fully_shard(self._orig_module, mesh.ours, "fsdp")
        self._shard_output = shard_output or self._by_default

    def _wrapped(self, module: Any, policy: Any, wrapper: Any) -> Any:
        if policy is None:
            return module.to("xla")
        make = wrapper or SpmdFullyShardedDataParallel
        recursive_wrap(
            module.to("xla"), auto_wrap_policy=policy, wrapper_cls=make,
            ignored_modules=set(), ignored_params=set(), only_wrap_children=True,
            mesh=self._mesh, extra_data_axis=self._extra,
        )  # fmt: skip
        return module

    def _by_default(self, output: Any, mesh: Any) -> None:
        first = output[0] if isinstance(output, tuple) else output
        if not isinstance(first, torch.Tensor):
            found = type(first).__name__
            raise RuntimeError(
                f"The output type is not supported: {found}. Please provide your own shard_output."
            )
        batch = "fsdp" if self._extra is None else (self._extra, "fsdp")
        xs.mark_sharding(first, mesh, (batch, *(None,) * (first.dim() - 1)))

    @property
    def module(self) -> torch.nn.Module:
        """What is inside."""
        return self._orig_module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = self._orig_module(*args, **kwargs)
        self._shard_output(output, self._mesh)
        return output

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_orig_module"), name)

    def __getitem__(self, key: int) -> Any:
        return self._orig_module[key]  # type: ignore[index]
