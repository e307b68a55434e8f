"""DTensor on meshes of device xla: torch's own names, served by annotation.

`init_device_mesh("xla", (2, 4), mesh_dim_names=("dp", "tp"))` in one process is a mesh of its
devices. `distribute_tensor`, `distribute_module`, `parallelize_module` and `fully_shard` over it
annotate whole values (torch_pjrt.spmd) and the compiler cuts them: shapes stay those of the whole,
`DTensor`s that come out are xla tensors, parameters stay plain. torch asks for this by importing
`torch_xla.distributed.spmd`; the first mesh of xla puts a module of that name in place where no
distribution torch_xla has one. With a process group of several ranks a mesh is of ranks, and all
is torch's own code over recorded collectives.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.utils._pytree import tree_map

from . import spmd
from ._device_mesh import is_view, spec_of, view_of
from ._imports import after_import
from ._placed import into as steps_into
from ._placed import steps_of_input, steps_of_output, through
from ._view_tensor import as_leaf, as_value, constrained, during, mode, normal, plain, results

__all__ = ["distribute_module", "distribute_tensor", "open_doors"]

_ASKED = "torch_xla.distributed.spmd"  # what torch imports

# ---- torch's functions --------------------------------------------------------------------------


def _of_ranks(name: str) -> Callable[..., Any]:
    """The function without its branch for xla, for meshes of ranks."""
    import torch.distributed.tensor._api as api

    f = getattr(api, name)
    code = f.__code__
    consts = tuple("xla of one process" if c == "xla" else c for c in code.co_consts)
    made = types.FunctionType(
        code.replace(co_consts=consts), f.__globals__, name, f.__defaults__, f.__closure__
    )
    made.__kwdefaults__ = f.__kwdefaults__
    return made


def _source_rank() -> Any:
    """`src_data_rank` of the call of torch's distribute_tensor, which does not hand it on."""
    frame = sys._getframe(2)
    for _ in range(3):
        if frame is None:
            break
        if frame.f_code.co_name == "distribute_tensor" and "src_data_rank" in frame.f_locals:
            return frame.f_locals["src_data_rank"]
        frame = frame.f_back  # type: ignore[assignment]
    return 0


def _merged(t: torch.Tensor, mesh: Any, spec: tuple[Any, ...]) -> tuple[Any, ...]:
    """With the cuts that the tensor has over axes which the mesh, a slice, does not speak of."""
    grid, dims = view_of(mesh)
    own = {axis for axes in dims for axis in axes}
    if len(own) == len(grid.axis_names) or t.device.type != "xla":
        return spec
    has = spmd.sharding_of(t, grid)
    if has is None or has.mesh != grid:
        return spec
    lists = [spmd._names(grid, s) for s in (has.spec, spec)]
    both = [[a for a in old if a not in own] + new for old, new in zip(*lists, strict=True)]
    return tuple(tuple(names) or None for names in both)


def _mark(t: torch.Tensor, mesh: Any, placements: Any) -> torch.Tensor:
    """In place; a tensor of the CPU goes up."""
    if t.is_meta:
        raise ValueError(
            "a tensor on meta has nothing that could be placed\n"
            "  try: module.to_empty(device='xla') first"
        )
    value = plain(t)
    spec = _merged(value, mesh, spec_of(mesh, placements, value.dim()))
    return spmd.mark_sharding(value, view_of(mesh)[0], spec)


def distribute_tensor(tensor: torch.Tensor, device_mesh: Any, placements: Any = None) -> Any:
    """`torch.distributed.tensor.distribute_tensor` for a mesh of xla.

    Over devices of one process `tensor` is put on the mesh, in place (one of the CPU goes up), and
    comes back as a DTensor that shares it. ValueError for sizes that are not divisible,
    RuntimeError for a tensor that is no leaf.
    """
    from torch.distributed.tensor import DTensor, Replicate

    if not is_view(device_mesh):
        return _of_ranks("distribute_tensor")(
            tensor, device_mesh, placements, src_data_rank=_source_rank()
        )
    placements = normal(placements or [Replicate()] * device_mesh.ndim, tensor.dim())
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != device_mesh or tensor.placements != placements:
            raise ValueError(
                f"Cannot distribute a DTensor with device mesh {tensor.device_mesh} and placements "
                f"{tensor.placements} to {device_mesh} and {placements}. do you want to call "
                "`redistribute` instead?"
            )
        return tensor
    if not tensor.is_leaf:
        raise RuntimeError(
            "`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf "
            "tensor!\n  try: torch_pjrt.spmd.mark_sharding for a value of a computation"
        )
    marked = _mark(tensor, device_mesh, placements)
    if mode() == "partition":
        return marked
    out = as_leaf(marked, tensor.requires_grad, device_mesh)
    out._pjrt_placements = _known(placements)
    return out


def _known(placements: Sequence[Any]) -> tuple[Any, ...]:
    from torch.distributed.tensor import Replicate

    return tuple(Replicate() if p.is_partial() else p for p in placements)


def _settle(module: torch.nn.Module, mesh: Any) -> None:
    """Parameters and buffers that nobody placed are on every device; all are plain."""
    from torch.distributed.tensor import Replicate

    whole = [Replicate()] * mesh.ndim
    tables: tuple[Any, Any] = (module._parameters, module._buffers)
    for table in tables:
        for key, t in table.items():
            if t is None:
                continue
            placed = t.device.type == "xla" and spmd.sharding_of(plain(t)) is not None
            new = plain(t) if placed else _mark(t, mesh, whole)
            if new is t:
                continue
            table[key] = (
                torch.nn.Parameter(new.detach(), requires_grad=t.requires_grad)
                if table is module._parameters
                else new
            )


def _takes_module(f: Callable[..., Any], what: str) -> Callable[..., Any]:
    """The function as (module, values, mesh); the older form has no module."""
    count = len(inspect.signature(f).parameters)
    if count == 2:
        return lambda _, values, mesh: f(values, mesh)
    if count == 3:
        return f
    raise ValueError(f"{what} should take in 3 arguments, but got {count} arguments!")


def _hook(module: torch.nn.Module, mesh: Any, input_fn: Any, output_fn: Any) -> None:
    """A module computes with plain tensors; what a style makes of its output stays a DTensor.

    In torch.compile torch's styles are what _placed.py knows of them, with plain results; functions
    of others break the graph.
    """
    if input_fn is not None:
        prepare = _takes_module(input_fn, "input_fn")

        def into(m: Any, inputs: Any) -> Any:
            with during("hooks"):
                return tree_map(plain, prepare(m, inputs, mesh))

        known = steps_of_input(mesh, input_fn)
        module.register_forward_pre_hook(_compilable(into, known, at=1))
    if output_fn is not None:
        finish = _takes_module(output_fn, "output_fn")

        def out_of(m: Any, _: Any, outputs: Any) -> Any:
            with during("hooks"):
                return finish(m, results(outputs, mesh), mesh)

        known = steps_of_output(mesh, output_fn)
        module.register_forward_hook(_compilable(out_of, known, at=2))


def _compilable(hook: Callable[..., Any], steps: Any, at: int) -> Callable[..., Any]:
    """The hook, which in torch.compile takes argument `at`, or its first, through `steps`."""
    unseen: Callable[..., Any] = _disable_dynamo(hook)
    if steps is None:
        return unseen

    def wrapped(*args: Any) -> Any:
        if not torch.compiler.is_compiling():
            return hook(*args)
        value = args[at]
        if isinstance(value, tuple):
            return (through(steps, value[0]), *value[1:])
        return through(steps, value)

    return wrapped


def distribute_module(
    module: torch.nn.Module,
    device_mesh: Any,
    partition_fn: Any = None,
    input_fn: Any = None,
    output_fn: Any = None,
) -> torch.nn.Module:
    """`torch.distributed.tensor.distribute_module` for a mesh of xla.

    Over devices of one process parameters are annotated and stay plain Parameters; `input_fn` and
    `output_fn` see whole values, on which placements are constraints.
    """
    if not is_view(device_mesh):
        made: torch.nn.Module = _of_ranks("distribute_module")(
            module, device_mesh, partition_fn, input_fn, output_fn
        )
        return made
    with during("partition"):
        for name, m in module.named_modules():
            if partition_fn is not None:
                partition_fn(name, m, device_mesh)
            _settle(m, device_mesh)
    _hook(module, device_mesh, input_fn, output_fn)
    module._distribute_module_applied = True  # type: ignore[assignment]
    return module


# ---- the doors ----------------------------------------------------------------------------------


def _from_local(api: Any) -> Any:
    torchs = api.DTensor.from_local

    @functools.wraps(torchs)
    def from_local(
        local_tensor: Any, device_mesh: Any = None, placements: Any = None, **rest: Any
    ) -> Any:
        mesh = device_mesh or api._mesh_resources.get_current_mesh()
        if not is_view(mesh):
            return torchs(local_tensor, mesh, placements, **rest)
        rank = local_tensor.dim()
        placements = normal(placements or [api.Replicate()] * mesh.ndim, rank)
        if mode() is None and not all(p.is_replicate() for p in placements):
            raise RuntimeError(
                f"DTensor.from_local as {placements}: one process has all devices of the mesh, so "
                "a tensor of it is a whole value and not one rank's part\n"
                "  try: distribute_tensor(whole, mesh, placements), or, inside a computation, "
                "torch_pjrt.spmd.mark_sharding; one process a device (torchrun) has parts"
            )
        if mode() == "partition":
            return _mark(local_tensor, mesh, placements)
        t = plain(local_tensor if local_tensor.device.type == "xla" else local_tensor.to("xla"))
        return as_value(constrained(t, mesh, placements, placements), mesh, _known(placements))

    return staticmethod(from_local)


def _made(api: Any) -> Callable[..., Any]:
    """`torch.distributed.tensor.zeros` and its kin."""
    torchs = api._dtensor_init_helper

    @functools.wraps(torchs)
    def helper(
        init_op: Any, size: Any, device_mesh: Any = None, placements: Any = None, **kwargs: Any
    ) -> Any:
        mesh = device_mesh or api._mesh_resources.get_current_mesh()
        if not is_view(mesh):
            return torchs(init_op, size, mesh, placements, **kwargs)
        needs = kwargs.pop("requires_grad", False)
        first = (size, kwargs.pop("fill_value", 0)) if init_op is torch.full else (size,)
        whole = init_op(*first, **kwargs | {"device": "xla"})
        return distribute_tensor(whole, mesh, placements).requires_grad_(needs)

    return helper


def _adjust_api(api: Any) -> None:
    api.DTensor.from_local = _from_local(api)
    api._dtensor_init_helper = _made(api)


def _adjust_style(style: Any) -> None:
    """The two styles that register hooks by themselves."""
    into, out = style.PrepareModuleInput, style.PrepareModuleOutput
    into_torchs, out_torchs = into._apply, out._apply

    @functools.wraps(into_torchs)
    def apply_into(self: Any, module: Any, device_mesh: Any) -> Any:
        if not is_view(device_mesh):
            return into_torchs(self, module, device_mesh)
        module.register_forward_pre_hook(_prepared(self, device_mesh), with_kwargs=True)
        return module

    @functools.wraps(out_torchs)
    def apply_out(self: Any, module: Any, device_mesh: Any) -> Any:
        if not is_view(device_mesh):
            return out_torchs(self, module, device_mesh)

        def after(_: Any, __: Any, outputs: Any) -> Any:
            with during("hooks"):
                return self._prepare_out_fn(outputs, device_mesh)

        plainly = len(self.output_layouts) == 1 and isinstance(
            self.output_layouts[0], api_placement
        )
        pair = (self.output_layouts, self.desired_output_layouts)
        steps = steps_into(device_mesh, *pair) if plainly else None
        module.register_forward_hook(_compilable(after, steps, at=2))
        return module

    api_placement = style.Placement
    into._apply, out._apply = apply_into, apply_out


def _prepared(style: Any, mesh: Any) -> Callable[..., Any]:
    """PrepareModuleInput's hook."""

    def before(_: Any, inputs: Any, named: Any) -> Any:
        with during("hooks"):
            return style._prepare_input_kwarg_fn(inputs, named, mesh)

    def steps(layouts: Any, desired: Any) -> list[Any]:
        pairs = zip(layouts or (), desired or (), strict=True)
        return [None if a is None else steps_into(mesh, (a,), b and (b,)) for a, b in pairs]

    by_place = steps(style.input_layouts, style.desired_input_layouts)
    names = list(style.input_kwarg_layouts)
    wanted = [style.desired_input_kwarg_layouts.get(name) for name in names]
    by_name = dict(zip(names, steps(style.input_kwarg_layouts.values(), wanted), strict=True))

    def wrapped(m: Any, inputs: Any, named: Any) -> Any:
        if not torch.compiler.is_compiling():
            return before(m, inputs, named)
        rest = [None] * (len(inputs) - len(by_place))
        given = zip(inputs, [*by_place, *rest], strict=True)
        return (
            tuple(through(to, x) if to else x for x, to in given),
            {k: through(by_name[k], x) if by_name.get(k) else x for k, x in named.items()},
        )

    return wrapped


def _installed() -> str | None:
    """Where a distribution torch_xla is."""
    try:
        spec = importlib.util.find_spec("torch_xla")
    except ValueError:  # something without a file stands for it
        return ""
    places = spec.submodule_search_locations if spec else None
    return None if spec is None else next(iter(places or ()), "")


def _answer_torch() -> None:
    """The module that torch asks for; torch_xla's own names stay where that is installed."""
    place = _installed()
    if place is None:
        answer: Any = types.ModuleType(_ASKED, "What torch.distributed.tensor asks torch_pjrt for.")
    elif (Path(place) / "_beside.py").exists():  # ours: compat/torch_xla
        answer = importlib.import_module(_ASKED)
    else:
        return
    answer.xla_distribute_tensor = distribute_tensor
    answer.xla_distribute_module = distribute_module
    sys.modules[_ASKED] = answer


def open_doors() -> None:
    """Serves torch's functions for meshes of xla; the first such mesh calls it."""
    from . import _fsdp

    _answer_torch()
    after_import("torch.distributed.tensor._api", _adjust_api)
    after_import("torch.distributed.tensor.parallel.style", _adjust_style)
    after_import("torch.distributed.fsdp._fully_shard._fully_shard", _fsdp.adjust)
