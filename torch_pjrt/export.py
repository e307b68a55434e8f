"""Models as StableHLO programs: to be run by other runtimes, and by this one without their Python.

program = torch_pjrt.export.stablehlo(model, (x,))
program.save("digits")
torch_pjrt.export.load("digits")(x)
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from . import _C
from ._recorded import record

__all__ = ["Argument", "LoadedProgram", "Program", "Result", "Signature", "load", "stablehlo"]

_FORMAT = 1
_NAME = "forward"
_DTYPES = {str(d).removeprefix("torch."): d for d in vars(torch).values() if type(d) is torch.dtype}
_BITS = {1: torch.uint8, 2: torch.uint16}  # what NumPy reads of a dtype that it does not know


@dataclass(frozen=True)
class Argument:
    """A parameter of the program. `kind`: "input", "parameter", "buffer" or "constant"."""

    kind: str
    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Result:
    """A result of the program: `name` is "" for the model's own, else what takes the value."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Signature:
    """What the program takes and gives, in its order.

    `arguments`: inputs as the user passes them, then weights. `results`: the model's own, then new
    values of inputs ("input:0") and weights that it writes.

    `inputs` and `outputs` are the flat leaves of the call and of its result, "tensor" or the
    `repr` of a value that is fixed; `in_spec` and `out_spec` are their pytrees.
    """

    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    in_spec: Any
    out_spec: Any


@dataclass(frozen=True)
class Program:
    """An exported model: `text` is StableHLO, `weights` are CPU tensors in the program's order."""

    text: str
    weights: dict[str, torch.Tensor]
    signature: Signature

    @cached_property
    def bytes(self) -> bytes:
        """A StableHLO portable artifact where `jaxlib` is installed, else the text."""
        return _artifact(self.text)[0]

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Writes text, bytes, signature and weights; `load` reads them. Gives the folder.

        The layout is torch_xla's: functions/forward.{mlir,bytecode,meta} and data/WEIGHT (NumPy's
        format; floats that NumPy does not have as their bits).
        """
        to = Path(folder)
        for part in ("functions", "data"):
            (to / part).mkdir(parents=True, exist_ok=True)
        data, version = _artifact(self.text)
        meta = _meta(self.signature, version)  # before anything is written: it may refuse
        (to / "functions" / f"{_NAME}.mlir").write_text(self.text)
        (to / "functions" / f"{_NAME}.bytecode").write_bytes(data)
        (to / "functions" / f"{_NAME}.meta").write_text(json.dumps(meta, indent=1))
        for name, weight in self.weights.items():
            _write(to / "data" / name, weight)
        return to


def stablehlo(
    model: Any,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    portable: bool = True,
) -> Program:
    """The program of a call `model(*args, **kwargs)`, which is recorded once and not run.

    `model` is a module, a function or a `torch.export.ExportedProgram` (which brings its own
    inputs: `args` are not needed). It may lie on the CPU or on the device. Tensors among the
    arguments become inputs, in the order of the call; weights follow; numbers are constants of the
    text, and arguments that are no tensors are fixed. With `portable` the text is plain StableHLO;
    without, it may use dialect `chlo`, which XLA understands.

    Raises NotImplementedError, with the op and its line, for an op that runs on the host and for
    dynamic shapes; RuntimeError for random numbers and for a model that reads a value; TypeError
    where `args` is no tuple.
    """
    if isinstance(args, torch.Tensor) or not isinstance(args, tuple | list):
        raise TypeError(f"torch_pjrt.export: args is a tuple, found {type(args).__name__}")
    r = record(model, tuple(args), dict(kwargs or {}), portable)
    inputs = [
        Argument("input", n, tuple(x.shape), _dtype(x))
        for n, x in zip(r.input_names, r.inputs, strict=True)
        if isinstance(x, torch.Tensor)
    ]
    held = [Argument(r.kinds[n], n, tuple(w.shape), _dtype(w)) for n, w in r.weights.items()]
    results = [Result("", tuple(x.shape), _dtype(x)) for x in r.outputs if _is_tensor(x)]
    results += [Result(n, tuple(x.shape), _dtype(x)) for n, x in r.updates]
    signature = Signature(
        (*inputs, *held), tuple(results), _leaves(r.inputs), _leaves(r.outputs),
        r.in_spec, r.out_spec,
    )  # fmt: skip
    return Program(r.text, r.weights, signature)


def load(folder: str | os.PathLike[str], device: int = 0) -> "LoadedProgram":
    """The program that `Program.save` wrote, compiled for a device.

    Raises FileNotFoundError where there is none or a weight is not there, ValueError where it is of
    another format.
    """
    path = Path(folder) / "functions" / f"{_NAME}.meta"
    if not path.exists():
        raise FileNotFoundError(f"torch_pjrt.export.load: no exported program in '{folder}'")
    meta = json.loads(path.read_text())
    if meta.get("format") != _FORMAT:
        raise ValueError(
            f"torch_pjrt.export.load: '{folder}' is of format {meta.get('format')}, this version "
            f"reads {_FORMAT}"
        )
    signature = _signature(meta)
    weights = {
        a.name: _read(Path(folder) / "data" / a.name, _DTYPES[a.dtype])
        for a in signature.arguments
        if a.kind != "input"
    }
    text = path.with_suffix(".mlir").read_text()
    return LoadedProgram(Program(text, weights, signature), str(folder), device)


class LoadedProgram:
    """An exported model that runs here. Calls take what the model took; one launch each.

    `weights` are its tensors on the device: a call reads them, and puts new values into those that
    the model writes (running statistics, caches).
    """

    def __init__(self, program: Program, name: str, device: int) -> None:
        self.signature, self.text = program.signature, program.text
        self.device = torch.device("xla", device)
        self.weights = {n: w.to(self.device) for n, w in program.weights.items()}
        sized = [torch.empty(r.shape, dtype=_DTYPES[r.dtype]) for r in self.signature.results]
        self._program = _C.Loaded(self.text, sized, f"the program of '{name}'", device)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's result, on the device. Raises TypeError for arguments of another kind."""
        tensors = self._arguments(args, kwargs)
        made = self._program.call([_whole(t.to(self.device)) for t in tensors] + self._held())
        own = sum(r.name == "" for r in self.signature.results)
        for result, value in zip(self.signature.results[own:], made[own:], strict=True):
            self._update(result.name, value, tensors)
        given = iter(made)
        flat = [next(given) if x == "tensor" else _value(x) for x in self.signature.outputs]
        return pytree.tree_unflatten(flat, self.signature.out_spec)

    def _held(self) -> list[torch.Tensor]:
        held = (a.name for a in self.signature.arguments if a.kind != "input")
        return [_whole(self.weights[name]) for name in held]

    def _update(self, name: str, value: torch.Tensor, inputs: list[torch.Tensor]) -> None:
        if name.startswith("input:"):
            inputs[int(name.removeprefix("input:"))].copy_(value)
        else:
            self.weights[name] = value

    def _arguments(self, args: Any, kwargs: Any) -> list[torch.Tensor]:
        flat, spec = pytree.tree_flatten((args, kwargs))
        if spec != self.signature.in_spec:
            raise TypeError(
                f"the exported program takes arguments of the form {self.signature.in_spec}, "
                f"found {spec}"
            )
        tensors = []
        for found, want in zip(flat, self.signature.inputs, strict=True):
            if want != "tensor" and repr(found) != want:
                raise TypeError(f"an argument was exported as {want}, found {found!r}")
            if want == "tensor":
                tensors.append(found)
        for t, a in zip(tensors, self.signature.arguments, strict=False):
            if not _is_tensor(t) or tuple(t.shape) != a.shape or _dtype(t) != a.dtype:
                found = f"{_dtype(t)}{list(t.shape)}" if _is_tensor(t) else type(t).__name__
                raise TypeError(f"argument {a.name} is {a.dtype}{list(a.shape)}, found {found}")
        return tensors


def _is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def _dtype(t: torch.Tensor) -> str:
    return str(t.dtype).removeprefix("torch.")


def _whole(t: torch.Tensor) -> torch.Tensor:
    t = t.detach().resolve_conj().resolve_neg().contiguous()
    return t.clone() if _C.state(t) == "view" else t


def _leaves(flat: list[Any]) -> tuple[str, ...]:
    return tuple("tensor" if _is_tensor(x) else repr(x) for x in flat)


def _value(text: str) -> Any:
    import ast

    return ast.literal_eval(text)


def _artifact(text: str) -> tuple[bytes, str]:
    """The program's bytes, and the StableHLO version that can read them; "" where they are text."""
    try:
        from jaxlib.mlir.dialects import stablehlo as dialect
    except ImportError:
        return text.encode(), ""
    for version in (dialect.get_minimum_version(), dialect.get_current_version()):
        try:
            return dialect.serialize_portable_artifact_str(text, version), version
        except Exception:  # noqa: S112 - an op that the old version has not
            continue
    return text.encode(), ""


# ---- files ----------------------------------------------------------------------------------

_LOCATIONS = {"input": "input_arg", "parameter": "parameter", "buffer": "parameter"}


def _meta(s: Signature, version: str) -> dict[str, Any]:
    for x in s.outputs:
        if x != "tensor":
            _check_value(x)
    sizes = [{"shape": a.shape, "dtype": a.dtype, "dynamic_dims": []} for a in s.arguments]
    position = {a.name: i for i, a in enumerate(a for a in s.arguments if a.kind == "input")}
    return {
        "format": _FORMAT,
        "name": _NAME,
        "stablehlo_version": version,
        "input_signature": sizes,
        "output_signature": [asdict(r) | {"dynamic_dims": []} for r in s.results],
        "input_locations": [
            {
                "type_": _LOCATIONS.get(a.kind, "constant"),
                "position": position.get(a.name, -1) if a.kind == "input" else -1,
                "name": a.name,
            }
            for a in s.arguments
        ],
        "unused_inputs": [],
        "input_pytree_spec": pytree.treespec_dumps(s.in_spec),
        "output_pytree_spec": pytree.treespec_dumps(s.out_spec),
        "kinds": [a.kind for a in s.arguments],
        "inputs": s.inputs,
        "outputs": s.outputs,
    }


def _check_value(text: str) -> None:
    try:
        _value(text)
    except (ValueError, SyntaxError):
        raise TypeError(
            f"torch_pjrt.export: a result of the model is {text}: tensors, numbers, strings and "
            "None can be saved"
        ) from None


def _signature(meta: dict[str, Any]) -> Signature:
    arguments = tuple(
        Argument(kind, place["name"], tuple(size["shape"]), size["dtype"])
        for kind, place, size in zip(
            meta["kinds"], meta["input_locations"], meta["input_signature"], strict=True
        )
    )
    results = tuple(
        Result(r["name"], tuple(r["shape"]), r["dtype"]) for r in meta["output_signature"]
    )
    specs = (meta["input_pytree_spec"], meta["output_pytree_spec"])
    in_spec, out_spec = map(pytree.treespec_loads, specs)
    return Signature(
        arguments, results, tuple(meta["inputs"]), tuple(meta["outputs"]), in_spec, out_spec
    )


def _write(path: Path, t: torch.Tensor) -> None:
    import numpy as np

    try:
        array = t.numpy()
    except TypeError:  # no dtype of NumPy's
        array = t.view(_BITS[t.element_size()]).numpy()
    with path.open("wb") as file:
        np.save(file, array)


def _read(path: Path, dtype: torch.dtype) -> torch.Tensor:
    if not path.exists():
        raise FileNotFoundError(
            f"torch_pjrt.export.load: no weight '{path.name}' in '{path.parent}'\n"
            "  try: save the program with its weights"
        )
    import numpy as np

    t = torch.from_numpy(np.load(path))
    return t if t.dtype == dtype else t.view(dtype)
