"""The backend of `torch.compile` on device xla, named `openxla` and `torch_pjrt`.

A graph of AOTAutograd's is a function of its arguments. At its first call it is recorded once, on
stand-ins for them, and compiled under the recording's hash without being run; from then on a call
launches that program. What cannot be recorded (a read of a value, an op that runs on the CPU) runs
between programs: the graph is cut there.
"""

import functools
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _C
from ._log import logger

__all__ = ["CompiledFunction", "graph_cuts", "graphs_compiled", "openxla"]

_TORCH = torch.__path__[0]
_KEPT = 64  # recordings of one function by the integers that it is called with
_cuts: list[tuple[str, str, str]] = []
_graphs: list[str] = []


def graph_cuts() -> list[tuple[str, str, str]]:
    """(function, op, why) of each op that torch.compile's graphs were cut at."""
    return list(_cuts)


def graphs_compiled() -> list[str]:
    """The functions of torch.compile's graphs that were called: a backward is one of its own."""
    return list(_graphs)


def openxla(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compiles a graph of dynamo's, forward and backward, for device xla.

    A graph without a tensor of device xla runs as it is. `options` and `mode` are inductor's and
    change nothing here.
    """
    if not on_xla(gm, example_inputs):
        return gm.forward
    from torch._dynamo.backends.common import aot_autograd

    name = _name_of(gm)
    compiler = aot_autograd(
        fw_compiler=functools.partial(_compile, name),
        bw_compiler=functools.partial(_compile, f"backward of {name}"),
        inference_compiler=functools.partial(_compile, name),
        keep_inference_input_mutations=True,
    )
    return compiler(gm, list(example_inputs))


def on_xla(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether the graph takes, holds or makes a tensor of device xla."""
    if any(isinstance(x, torch.Tensor) and x.device.type == "xla" for x in inputs):
        return True
    held = (*gm.parameters(), *gm.buffers())
    return any(t.device.type == "xla" for t in held) or any(map(_makes_xla, gm.graph.nodes))


def _makes_xla(node: torch.fx.Node) -> bool:
    for x in (node.meta.get("example_value"), node.meta.get("val"), *node.kwargs.values()):
        device = x if isinstance(x, torch.device) else getattr(x, "device", None)
        if getattr(device, "type", None) == "xla" or (isinstance(x, str) and x[:3] == "xla"):
            return True
    return False


def _compile(
    name: str, gm: torch.fx.GraphModule, _inputs: Sequence[Any]
) -> Callable[[list[Any]], Any]:
    _check_devices(gm)
    function = CompiledFunction(gm, name, counted=True)

    def run(args: list[Any]) -> Any:
        return function(args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _check_devices(gm: torch.fx.GraphModule) -> None:
    """RuntimeError, as eager's, for a convolution of tensors on several devices.

    FakeTensor knows such a mistake of other ops; before PyTorch 2.15 its convolution takes the
    input's device. tests/python/test_compile.py has the reproducer.
    """
    ops = (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default)
    for n in gm.graph.nodes:
        if n.op != "call_function" or n.target not in ops:
            continue
        vals = [i.meta.get("val") for i in n.all_input_nodes]
        devices = dict.fromkeys(str(v.device) for v in vals if _is_tensor(v))
        if len(devices) > 1:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{' and '.join(devices)}!\n  try: move the other tensor with .to(...)\n"
                f"  in {n.target.name()}{_line_of(n)}"
            )


class _Recorder(torch.fx.Interpreter):
    """Runs a graph node by node and knows where it is."""

    node: torch.fx.Node | None = None

    def run_node(self, n: torch.fx.Node) -> Any:
        self.node = n
        return super().run_node(n)


class _RefusedError(Exception):
    def __init__(self, node: torch.fx.Node | None, why: str) -> None:
        super().__init__(why)
        self.node, self.why = node, why


class _Recording:
    """One program, and what of its results is no tensor of the device."""

    def __init__(self, compiled: Any, results: list[Any], on_cpu: list[int]) -> None:
        self.compiled, self.on_cpu = compiled, on_cpu
        self.constants = [
            (i, x) for i, x in enumerate(results) if x is not None and not _is_tensor(x)
        ]

    def __call__(self, tensors: list[Any]) -> list[Any] | None:
        out: list[Any] | None = self.compiled.call(tensors)
        if out is not None:
            for i, x in self.constants:
                out[i] = x
            for i in self.on_cpu:
                out[i] = out[i].cpu()
        return out


def _is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


class CompiledFunction:
    """A graph of AOTAutograd's as programs. Takes a list of arguments and empties it."""

    def __init__(self, gm: torch.fx.GraphModule, name: str, counted: bool = False) -> None:
        self.gm, self.name = gm, name
        self.counted = counted  # among graphs_compiled(), once it is called
        self.collectives = any("c10d" in str(n.target) for n in gm.graph.nodes)
        self.recordings: OrderedDict[tuple[Any, ...], list[_Recording]] = OrderedDict()
        self.numbers: list[int] | None = None  # places of arguments that are no tensors
        self.split: Callable[..., Any] | None = None
        self.lock = threading.RLock()

    def __call__(self, args: list[Any]) -> Any:
        """The graph's results."""
        if self.split is not None:
            return self._run_split(args)
        if self.numbers is None:
            self.numbers = [i for i, x in enumerate(args) if not _is_tensor(x)]
        static = tuple((i, args[i]) for i in self.numbers)
        tensors = [x for x in args if _is_tensor(x)] if static else list(args)
        args.clear()
        if self.collectives:  # they take the process's token, and leave the next one
            index = next((x.device.index for x in tensors if x.device.type == "xla"), 0)
            tensors.append(_C.collective_token(index))
        for recording in self.recordings.get(static, ()):
            if (out := recording(tensors)) is not None:
                return out
        return self._first_call(tensors, static)

    def _first_call(self, tensors: list[Any], static: tuple[Any, ...]) -> Any:
        with self.lock:
            if self.counted:
                _graphs.append(self.name)
                self.counted = False
            try:
                recording = self._record(tensors, static)
            except _RefusedError as refused:
                self.split = self._split_at(refused)
                given = tensors[:-1] if self.collectives else tensors
                return self._run_split(_merge(given, static))
            self.recordings.setdefault(static, []).append(recording)
            self.recordings.move_to_end(static)
            if len(self.recordings) > _KEPT:
                self.recordings.popitem(last=False)
        return recording(tensors)

    def _record(self, tensors: list[Any], static: tuple[Any, ...]) -> _Recording:
        trace = _C.Trace(tensors, self.name)
        recorder = _Recorder(self.gm)
        try:
            stand_ins = trace.stand_ins()
            _C.set_traced_token(stand_ins.pop() if self.collectives else None)
            with torch.no_grad():
                results = recorder.run(*_merge(stand_ins, static))
            results = list(results) if isinstance(results, tuple | list) else [results]
            compiled = trace.finish([x if _is_tensor(x) else None for x in results])
        except Exception:
            if trace.refused:
                raise _RefusedError(recorder.node, trace.refused) from None
            raise
        finally:
            _C.set_traced_token(None)
            trace.end()
        return _Recording(compiled, results, self._on_cpu(results))

    def _on_cpu(self, results: list[Any]) -> list[int]:
        """Results that the graph has on the CPU, though they were computed on the device."""
        asked = self.gm.graph.output_node().args[0]
        asked = asked if isinstance(asked, tuple | list) else [asked]
        found = []
        for i, (node, x) in enumerate(zip(asked, results, strict=True)):
            want = getattr(getattr(node, "meta", {}).get("val"), "device", None)
            if _is_tensor(x) and x.device.type == "xla" and want is not None and want.type == "cpu":
                found.append(i)
        return found

    def _split_at(self, refused: _RefusedError) -> Callable[..., Any]:
        """The graph as programs with the refused op between them."""
        node = refused.node
        op = "its results" if node is None or node.op == "output" else str(node.target)
        _cuts.append((self.name, op, refused.why))
        logger.warning("torch.compile: %s is cut at %s: %s", self.name, op, refused.why)
        if node is None or node.op in ("output", "placeholder"):
            return self.gm
        try:
            return _split(self.gm, node, self.name)
        except KeyError as error:  # torch.fx cannot: a constant is itself a result
            logger.info("torch.compile: %s runs uncompiled: no split at %s", self.name, error)
            return self.gm

    def _run_split(self, args: list[Any]) -> Any:
        given, split = list(args), self.split or self.gm
        args.clear()
        with torch.no_grad():
            return split(*given)


class _Part(torch.nn.Module):
    """A part of a split graph: called with arguments, not a list of them."""

    def __init__(self, gm: torch.fx.GraphModule, name: str) -> None:
        super().__init__()
        self.function = CompiledFunction(gm, name)
        self.gives_many = isinstance(gm.graph.output_node().args[0], tuple | list)

    def forward(self, *args: Any) -> Any:
        out = self.function(list(args))
        return out if self.gives_many else out[0]


def _split(gm: torch.fx.GraphModule, node: torch.fx.Node, name: str) -> torch.fx.GraphModule:
    from torch.fx.passes.split_module import split_module

    parts: dict[torch.fx.Node, int] = {}
    part = 0
    for n in gm.graph.nodes:
        part += n is node
        parts[n] = part
        part += n is node
    alone = parts[node]
    made = split_module(gm, gm, lambda n: parts[n], keep_original_order=True)
    children: list[tuple[str, Any]] = list(made.named_children())
    for part_name, child in children:
        if part_name.startswith("submod_") and part_name != f"submod_{alone}":
            setattr(made, part_name, _Part(child, name))
    return made


def _merge(tensors: list[Any], static: tuple[Any, ...]) -> list[Any]:
    out = list(tensors)
    for i, x in static:
        out.insert(i, x)
    return out


def _name_of(gm: torch.fx.GraphModule) -> str:
    """Function, file and line of the last op that has them, else the line that called it."""
    for n in reversed(gm.graph.nodes):
        if lines := _lines_of(n):
            file, line, function = lines[-1]
            return f"{function} ({file.rpartition('/')[2]}:{line})"
    return f"function called at {_C.user_frame() or 'an unknown line'}"


def _lines_of(node: torch.fx.Node) -> list[tuple[str, str, str]]:
    """(file, line, function) of each frame that the op was called from, if that is known."""
    trace = node.meta.get("stack_trace") or ""
    return re.findall(r'File "(.+?)", line (\d+), in (\S+)', trace)


def _line_of(node: torch.fx.Node) -> str:
    """Where the user's code called the op, as the last line of an error."""
    for file, line, function in reversed(_lines_of(node)):
        if not file.startswith(_TORCH):
            return f"\n  called at {file.rpartition('/')[2]}:{line} in {function}"
    return ""
