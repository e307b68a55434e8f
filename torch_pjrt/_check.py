"""Is this the torch that `_C` was built for? Asked before `_C` is loaded.

A C++ extension of another torch fails with an undefined symbol, or worse, works a little.
"""

__all__ = ["built_for", "check_torch", "release"]


def release(version: str) -> str:
    """The part of a version that fixes the C++ interface: "2.13.0+cpu" -> "2.13.0"."""
    return version.partition("+")[0]


def built_for() -> str:
    """The torch version that `_C` was built for."""
    try:
        from . import _build_info
    except ImportError:
        raise ImportError(
            "torch_pjrt is not built: torch_pjrt/_build_info.py is missing. "
            "In a source tree run `make`; else: pip install --force-reinstall torch-pjrt"
        ) from None
    return _build_info.TORCH_VERSION


def check_torch(found: str, wanted: str) -> None:
    """Raises ImportError where the torch found is not the one wanted."""
    if release(found) == release(wanted):
        return
    raise ImportError(
        f"torch_pjrt was built for torch {release(wanted)} but torch {found} is installed. "
        f"Run `pip install torch=={release(wanted)}`, or install the torch_pjrt that is built for "
        f"torch {release(found)} (from source: make clean && make)."
    )
