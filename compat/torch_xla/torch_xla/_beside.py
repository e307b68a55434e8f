"""Refuses to stand in for a torch_xla that is itself installed."""

import importlib.metadata
from pathlib import Path

__all__ = ["check"]


def check(here: Path) -> None:
    """Raises ImportError where another distribution owns the name."""
    for found in importlib.metadata.distributions(name="torch_xla"):
        if (found.metadata["Summary"] or "").endswith("on torch_pjrt"):
            continue
        where = Path(str(found.locate_file("torch_xla")))
        raise ImportError(
            f"two packages named torch_xla: {found.metadata['Name']} {found.version} in {where} "
            f"and torch_pjrt's, in {here}\n  try: pip uninstall torch_xla, then install "
            "torch_pjrt's again"
        )
