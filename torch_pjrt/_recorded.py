"""Records a model once for `torch_pjrt.export`: what it computes, of which inputs and weights."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from . import _C
from ._scope import scope

__all__ = ["Recorded", "record"]


@dataclass
class Recorded:
    """A recorded function. `inputs` and `outputs` are flat; a leaf may be no tensor."""

    name: str
    text: str
    inputs: list[Any]
    input_names: list[str]
    in_spec: Any
    outputs: list[Any]  # tensors tell shape and dtype only
    out_spec: Any
    weights: dict[str, torch.Tensor]  # in the order of the program's parameters, on the CPU
    kinds: dict[str, str]  # by name of a weight: "parameter", "buffer" or "constant"
    updates: list[tuple[str, torch.Tensor]]  # "input:3", or a weight's name; what it is like


@dataclass
class _Task:
    """What there is to record: `run` takes the inputs' tensors, then the weights."""

    name: str
    inputs: list[Any]
    input_names: list[str]
    in_spec: Any
    weights: dict[str, torch.Tensor]
    kinds: dict[str, str]
    run: Callable[[list[Any], list[torch.Tensor]], tuple[list[Any], Any]]


def record(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], portable: bool
) -> Recorded:
    """Runs the model once on stand-ins."""
    _C.sync(False)
    task = _of_program(model) if _is_exported(model) else _of_callable(model, args, dict(kwargs))
    tensors = [x for x in task.inputs if isinstance(x, torch.Tensor)]
    recording = _C.Export([*tensors, *task.weights.values()], len(tensors), task.name)
    try:
        stand_ins = recording.stand_ins()
        given = iter(stand_ins)
        inputs = [next(given) if isinstance(x, torch.Tensor) else x for x in task.inputs]
        outputs, out_spec = task.run(inputs, list(given))
        made = [_on_device(x) for x in outputs if isinstance(x, torch.Tensor)]
        found = recording.finish(made, portable)
    except Exception as error:
        if recording.refused:
            raise RuntimeError(_refusal(task.name, recording.refused, error)) from None
        raise
    finally:
        recording.end()
    return _recorded(task, found, len(tensors), outputs, out_spec)


def _refusal(name: str, why: str, error: Exception) -> str:
    where = "\n".join(str(error).splitlines()[1:])
    return f"torch_pjrt.export: {name} cannot be one program: {why}\n{where}".rstrip()


def _on_device(t: torch.Tensor) -> torch.Tensor:
    return t if t.device.type == "xla" else t.to("xla")


def _recorded(task: _Task, found: Any, tensors: int, outputs: list[Any], out_spec: Any) -> Recorded:
    names, values = list(task.weights), list(task.weights.values())
    used = [i - tensors for i in found.parameters if i >= tensors]
    weights = {names[i]: _copied(values[i]) for i in used}
    kinds = {n: task.kinds[n] for n in weights}
    for i, t in enumerate(found.constants):
        weights[f"constant.{i}"], kinds[f"constant.{i}"] = _copied(t), "constant"
    given = [x for x in task.inputs if isinstance(x, torch.Tensor)] + values
    updates = [
        (f"input:{i}" if i < tensors else names[i - tensors], given[i]) for i in found.updated
    ]
    shapes = [
        torch.empty_like(x, device="meta") if isinstance(x, torch.Tensor) else x for x in outputs
    ]
    return Recorded(
        task.name, found.text, task.inputs, task.input_names, task.in_spec, shapes, out_spec,
        weights, kinds, updates,
    )  # fmt: skip


def _copied(t: torch.Tensor) -> torch.Tensor:
    t = t.detach()
    return t.cpu().contiguous() if t.device.type != "cpu" else t.contiguous().clone()


# ---- modules and functions ------------------------------------------------------------------


def _of_callable(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Task:
    module = model if isinstance(model, torch.nn.Module) else None
    flat, in_spec = pytree.tree_flatten((args, kwargs))
    parameters = dict(module.named_parameters()) if module else {}
    buffers = dict(module.named_buffers()) if module else {}
    names = [*parameters, *buffers]

    def run(inputs: list[Any], weights: list[torch.Tensor]) -> tuple[list[Any], Any]:
        given, named = pytree.tree_unflatten(inputs, in_spec)
        if module:
            held = dict(zip(names, weights, strict=True))
            out = torch.func.functional_call(module, held, given, named)
        else:
            out = model(*given, **named)
        return pytree.tree_flatten(out)

    kinds = dict.fromkeys(parameters, "parameter") | dict.fromkeys(buffers, "buffer")
    name = type(model).__name__ if module else getattr(model, "__name__", "function")
    return _Task(
        name, flat, _input_names(module.forward if module else model, args, kwargs), in_spec,
        {**parameters, **buffers}, kinds, run,
    )  # fmt: skip


def _input_names(f: Callable[..., Any], args: Any, kwargs: Any) -> list[str]:
    """For an argument x "x", for what is in it "x[0]" and "x['mask']"."""
    try:
        named = list(inspect.signature(f).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        named = []
    names = []
    paths: list[Any] = [path for path, _ in pytree.tree_flatten_with_path((args, kwargs))[0]]
    for which, key, *rest in paths:
        if which.idx == 1:
            name = str(key.key)
        else:
            name = named[key.idx] if key.idx < len(named) else f"args[{key.idx}]"
        names.append(name + pytree.keystr(tuple(rest)))
    return names


# ---- exported programs ----------------------------------------------------------------------


def _is_exported(model: Any) -> bool:
    return type(model).__name__ == "ExportedProgram" and hasattr(model, "graph_signature")


def _of_program(ep: Any) -> _Task:
    from torch.export.graph_signature import ConstantArgument, InputKind

    kinds = {
        InputKind.PARAMETER: "parameter",
        InputKind.BUFFER: "buffer",
        InputKind.CONSTANT_TENSOR: "constant",
    }
    held = {**ep.constants, **ep.state_dict}
    inputs: list[Any] = []
    names, places = [], []  # of inputs; by placeholder: ("input", i) or ("weight", name)
    weights: dict[str, torch.Tensor] = {}
    placeholders = [n for n in ep.graph.nodes if n.op == "placeholder"]
    for node, spec in zip(placeholders, ep.graph_signature.input_specs, strict=True):
        if spec.kind == InputKind.USER_INPUT:
            places.append(("input", len(inputs)))
            names.append(node.name)
            static = isinstance(spec.arg, ConstantArgument)
            inputs.append(spec.arg.value if static else _sized(node))
        elif spec.kind in kinds:
            places.append(("weight", spec.target))
            weights[spec.target] = held[spec.target]
        else:
            raise NotImplementedError(
                f"torch_pjrt.export: input {node.name} of the exported program is a "
                f"{spec.kind.name.lower()}: tensors and plain values can be exported"
            )
    by_name = {s.target: kinds[s.kind] for s in ep.graph_signature.input_specs if s.kind in kinds}
    run = _runner(ep, places, list(weights))
    name = "ExportedProgram"
    return _Task(name, inputs, names, ep.call_spec.in_spec, weights, by_name, run)


def _sized(node: torch.fx.Node) -> torch.Tensor:
    """A tensor of the placeholder's type; no bytes are touched."""
    val = node.meta["val"]
    if any(not isinstance(s, int) for s in val.shape):
        raise NotImplementedError(
            f"torch_pjrt.export: input {node.name} has the dynamic shape {list(val.shape)}: "
            "programs have static shapes\n  try: torch.export.export without dynamic_shapes, once "
            "for each shape"
        )
    return torch.empty(val.shape, dtype=val.dtype)


def _runner(
    ep: Any, places: list[tuple[str, Any]], names: list[str]
) -> Callable[[list[Any], list[torch.Tensor]], tuple[list[Any], Any]]:
    from torch.export.graph_signature import OutputKind

    def run(inputs: list[Any], weights: list[torch.Tensor]) -> tuple[list[Any], Any]:
        by_name = dict(zip(names, weights, strict=True))
        arguments = [inputs[at] if kind == "input" else by_name[at] for kind, at in places]
        outputs = list(_OnDevice(ep.graph_module).run(*arguments))
        results = []
        for spec, out in zip(ep.graph_signature.output_specs, outputs, strict=True):
            if spec.kind == OutputKind.USER_OUTPUT:
                results.append(out)
            elif spec.kind == OutputKind.USER_INPUT_MUTATION:
                user = [n.name for n in ep.graph.nodes if n.op == "placeholder"]
                arguments[user.index(spec.target)].copy_(out)
            else:
                by_name[spec.target].copy_(out)
        return results, ep.call_spec.out_spec

    return run


class _OnDevice(torch.fx.Interpreter):
    """Runs a graph that was exported for the CPU on the device; its ops know the user's lines."""

    def run_node(self, n: torch.fx.Node) -> Any:
        lines = re.findall(r'File "(.+?)", line (\d+), in (\S+)', n.meta.get("stack_trace") or "")
        if not lines:
            return super().run_node(n)
        file, line, function = lines[-1]
        with scope(f"{function} ({file.rpartition('/')[2]}:{line})"):
            return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map_only(torch.device, _moved, (args, kwargs))
        try:
            return super().call_function(target, args, kwargs)
        except RuntimeError:
            if target is not torch.ops.aten.view.default:
                raise
            # The graph was decomposed for the CPU, whose kernels lay some results out otherwise.
            return torch.ops.aten.reshape.default(*args, **kwargs)


def _moved(device: torch.device) -> torch.device:
    return torch.device("xla") if device.type == "cpu" else device
