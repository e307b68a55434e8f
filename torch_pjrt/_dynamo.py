"""What dynamo, FakeTensor and AOTAutograd do not know of device xla, put right.

What `import torch` loads is mended at once, dynamo when somebody imports it.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from . import _C, _device_module
from ._imports import after_import

__all__ = ["install"]


def install() -> None:
    """Puts all of it in place."""
    after_import("torch._subclasses.fake_tensor", _index_devices)
    after_import("torch._prims.rng_prims", _save_generator)
    after_import("torch._dynamo.backends.registry", _register)
    after_import("torch._dynamo.backends.torchxla", _replace_openxla)
    after_import("torch._dynamo.trace_rules", _skip_recorders)
    _default_backend()


def _skip_recorders(trace_rules: Any) -> None:
    """What records the bodies of loops is not for dynamo to compile."""
    for name in ("_control", "_higher_order", "_recurrent"):
        trace_rules.add(f"{__package__}.{name}")


def _openxla(*args: Any, **kwargs: Any) -> Any:
    from ._compile import openxla

    return openxla(*args, **kwargs)


def _register(registry: Any) -> None:
    registry.register_backend(compiler_fn=_openxla, name="torch_pjrt")


def _replace_openxla(torchxla: Any) -> None:
    """PyTorch's own openxla asks for the package torch_xla."""
    registry = sys.modules["torch._dynamo.backends.registry"]
    for name in ("openxla", "openxla_eval"):
        registry._COMPILER_FNS[name] = _openxla  # type: ignore[attr-defined]
    torchxla.openxla = _openxla


def _default_backend() -> None:
    """`torch.compile(f)` means inductor, which has no device xla: its graphs go to openxla."""
    wrapper: Any = torch._TorchCompileInductorWrapper
    before = wrapper.__call__

    @functools.wraps(before)
    def __call__(self: Any, model_: Any, inputs_: Any, **kwargs: Any) -> Any:  # noqa: N807
        from ._compile import on_xla

        if on_xla(model_, inputs_):
            return _openxla(model_, inputs_)
        return before(self, model_, inputs_, **kwargs)

    wrapper.__call__ = __call__


def _index_devices(fake_tensor: Any) -> None:
    """FakeTensor takes "xla" for "xla:0", as it does for CUDA."""
    before = fake_tensor._is_indexed_device_type

    @functools.wraps(before)
    def wrapped(device_type: str) -> bool:
        return device_type == "xla" or before(device_type)

    fake_tensor._is_indexed_device_type = wrapped


def _generator_state() -> torch.Tensor:
    if _C.tracing():
        _C.refuse_trace("it takes the generator's state")
    return _device_module.get_rng_state()


def _save_and_run(op: Any, *args: Any, **kwargs: Any) -> Any:
    return _generator_state(), op(*args, **kwargs)


def _run_with(rng_state: torch.Tensor, op: Any, *args: Any, **kwargs: Any) -> Any:
    before = _generator_state()
    _device_module.set_rng_state(rng_state.cpu())
    out = op(*args, **kwargs)
    _device_module.set_rng_state(before)
    return out


def _by_device(get_device: Any, ours: Any, others: Any, first: int) -> Callable[..., Any]:
    def impl(*args: Any, **kwargs: Any) -> Any:
        on_xla = get_device(args[first:], kwargs) == "xla"
        return (ours if on_xla else others)(*args, **kwargs)

    return impl


def _save_generator(prims: Any) -> None:
    """Checkpoints inside compiled functions draw the same numbers again."""
    key = torch._C.DispatchKey
    for hop, ours, first in (
        (prims.run_and_save_rng_state, _save_and_run, 1),
        (prims.run_with_rng_state, _run_with, 2),
    ):
        before = hop.py_kernels[key.BackendSelect]
        hop.py_kernels[key.BackendSelect] = _by_device(prims.get_device, ours, before, first)
        hop.py_impl(key.XLA)(ours)
        hop._dispatch_cache.clear()
