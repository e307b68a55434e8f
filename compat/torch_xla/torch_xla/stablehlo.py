"""Exported programs, of torch_pjrt.export."""

import itertools
import json
import os
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

import torch

from torch_pjrt import export as _export

from ._names import later_class
from .experimental.stablehlo_custom_call import (  # noqa: F401
    extract_custom_call_outputs_shape_dtype,
    stablehlo_custom_call,
)
from .experimental.unbounded_dynamism_export import (  # noqa: F401
    exported_program_has_symbolic_input_shape,
    process_exported_program_with_symbolic_input,  # type: ignore[attr-defined]
)


class StableHLOGraphModule:
    """An exported program: its texts, saving, calling."""

    def __init__(self, program: _export.Program, export_weights: bool = True) -> None:
        self._program, self._export_weights = program, export_weights
        self._loaded: _export.LoadedProgram | None = None

    @property
    def _bundle(self) -> "StableHLOModelBundle":
        """The program with its weights, as torch_xla describes it."""
        signature = self._program.signature
        results = [VariableSignature(list(r.shape), r.dtype) for r in signature.results]
        arguments = [VariableSignature(list(a.shape), a.dtype) for a in signature.arguments]
        meta = StableHLOFunctionMeta("forward", "", arguments, results, _locations(signature))
        func = StableHLOFunc(meta, self._program.bytes, self._program.text)
        return StableHLOModelBundle(self._weights(), [], [func])

    def _weights(self) -> dict[str, torch.Tensor]:
        """As they are now, on the host: calls may write some of them."""
        if not self._export_weights:
            return {}
        if self._loaded is None:
            return dict(self._program.weights)
        return {name: w.cpu() for name, w in self._loaded.weights.items()}

    def get_stablehlo_text(self, method_name: str = "forward") -> str:
        return self._program.text

    def get_stablehlo_bytecode(self, method_name: str = "forward") -> bytes:
        return self._program.bytes

    def save(self, directory_path: str | os.PathLike[str], options: Any = None) -> None:
        """Writes it to a folder, without its weights where the options say so."""
        weights = self._weights() if options is None or options.save_weights else {}
        _export.Program(self._program.text, weights, self._program.signature).save(directory_path)

    @classmethod
    def load(cls, directory_path: str | os.PathLike[str]) -> "StableHLOGraphModule":
        """What save() wrote, with the weights that it wrote."""
        loaded = _export.load(directory_path)
        made = cls(_export.Program(loaded.text, {}, loaded.signature))
        made._loaded = loaded
        return made

    def __call__(self, *args: Any) -> Any:
        if self._loaded is None:
            self._loaded = _export.LoadedProgram(self._program, "StableHLOGraphModule", 0)
        return self._loaded(*args)

    evaluate = __call__


def _locations(signature: _export.Signature) -> list["InputLocation"]:
    inputs = itertools.count()
    return [
        InputLocation.input_arg(next(inputs))
        if a.kind == "input"
        else InputLocation.parameter(a.name)
        for a in signature.arguments
    ]


def exported_program_to_stablehlo(exported_model: Any, options: Any = None) -> StableHLOGraphModule:
    """Of a torch.export.ExportedProgram; with `options.export_weights` off without its weights."""
    program = _export.stablehlo(exported_model, portable=False)
    return StableHLOGraphModule(program, options is None or options.export_weights)


def save_as_stablehlo(
    exported_model: Any, stablehlo_dir: str | os.PathLike[str], options: Any = None
) -> None:
    exported_program_to_stablehlo(exported_model, options).save(stablehlo_dir, options)


def save_torch_model_as_stablehlo(
    torchmodel: torch.nn.Module, args: tuple[Any, ...], path: str | os.PathLike[str],
    options: Any = None,
) -> None:  # fmt: skip
    program = _export.stablehlo(torchmodel, tuple(args), portable=False)
    StableHLOGraphModule(program).save(path, options)


# ---- how a program is described -------------------------------------------------------------


class VariableType(Enum):
    """Where an argument comes from."""

    INPUT_ARG = "input_arg"
    PARAMETER = "parameter"
    CONSTANT = "constant"


@dataclass
class VariableSignature:
    """Sizes and dtype of an argument or a result."""

    shape: list[int]
    dtype: str
    dynamic_dims: list[int] = field(default_factory=list)


@dataclass
class InputLocation:
    """An argument: the position of an input, or the name of a weight."""

    type_: VariableType
    position: int = -1
    name: str = ""

    @classmethod
    def input_arg(cls, position: int) -> "InputLocation":
        return cls(VariableType.INPUT_ARG, position)

    @classmethod
    def parameter(cls, name: str) -> "InputLocation":
        return cls(VariableType.PARAMETER, name=name)

    @classmethod
    def constant(cls, position: int) -> "InputLocation":
        return cls(VariableType.CONSTANT, position)


@dataclass
class StableHLOFunctionMeta:
    """What a program takes and gives."""

    name: str
    stablehlo_version: str
    input_signature: list[VariableSignature]
    output_signature: list[VariableSignature]
    input_locations: list[InputLocation]
    unused_inputs: list[Any] = field(default_factory=list)
    input_pytree_spec: str | None = None
    output_pytree_spec: str | None = None


@dataclass
class StableHLOFunc:
    """A program."""

    meta: StableHLOFunctionMeta
    bytecode: bytes
    text: str | None


@dataclass
class StableHLOModelBundle:
    """Programs with their weights."""

    state_dict: dict[str, Any]
    additional_constants: list[Any]
    stablehlo_funcs: list[StableHLOFunc]


@dataclass
class StableHLOExportOptions:
    """Options of exporting; those that torch_pjrt has no use for change nothing."""

    override_tracing_arguments: Any = None
    override_tracing_kwargs: Any = None
    export_weights: bool = True
    save_weights: bool = True
    custom_ops_allowed_in_graph: set[str] = field(default_factory=set)
    inline_all_constant: bool = True
    export_node_metadata: bool = False
    include_human_readable_text: bool = True


class StableHLOJSONSerializer(json.JSONEncoder):
    """Descriptions as JSON."""

    def default(self, o: Any) -> Any:
        if isinstance(o, Enum):
            return o.value
        return asdict(o) if is_dataclass(o) and not isinstance(o, type) else super().default(o)


def stablehlo_obj_hook(obj: dict[str, Any]) -> Any:
    """Back from JSON."""
    kinds = (StableHLOFunctionMeta, VariableSignature, InputLocation)
    for kind in kinds:
        if {f.name for f in fields(kind)} >= set(obj) and obj:
            if kind is InputLocation:
                obj = obj | {"type_": VariableType(obj["type_"])}
            return kind(**obj)
    return obj


XLAExportInterpreter = later_class(
    "stablehlo.XLAExportInterpreter", "exported_program_to_stablehlo: it records by itself"
)
