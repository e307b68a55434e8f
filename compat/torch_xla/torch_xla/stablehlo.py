"""Exported programs, of torch_pjrt.export."""

import os
from typing import Any

import torch

from torch_pjrt import export as _export


class StableHLOGraphModule:
    """An exported program: its texts, saving, calling."""

    def __init__(self, program: _export.Program) -> None:
        self._program = program
        self._loaded: _export.LoadedProgram | None = None

    def get_stablehlo_text(self, method_name: str = "forward") -> str:
        return self._program.text

    def get_stablehlo_bytecode(self, method_name: str = "forward") -> bytes:
        return self._program.bytes

    def save(self, directory_path: str | os.PathLike[str]) -> None:
        self._program.save(directory_path)

    @classmethod
    def load(cls, directory_path: str | os.PathLike[str]) -> _export.LoadedProgram:
        return _export.load(directory_path)

    def __call__(self, *args: Any) -> Any:
        if self._loaded is None:
            self._loaded = _export.LoadedProgram(self._program, "StableHLOGraphModule", 0)
        return self._loaded(*args)

    evaluate = __call__


def exported_program_to_stablehlo(exported_model: Any, options: Any = None) -> StableHLOGraphModule:
    """Of a torch.export.ExportedProgram."""
    return StableHLOGraphModule(_export.stablehlo(exported_model, portable=False))


def save_as_stablehlo(
    exported_model: Any, stablehlo_dir: str | os.PathLike[str], options: Any = None
) -> None:
    exported_program_to_stablehlo(exported_model).save(stablehlo_dir)


def save_torch_model_as_stablehlo(
    torchmodel: torch.nn.Module, args: tuple[Any, ...], path: str | os.PathLike[str],
    options: Any = None,
) -> None:  # fmt: skip
    _export.stablehlo(torchmodel, tuple(args), portable=False).save(path)
