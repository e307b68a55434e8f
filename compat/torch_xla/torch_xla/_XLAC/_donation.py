"""Buffers that a program may overwrite: those that are dead always are. Placeholders."""

from typing import Any

import torch

import torch_pjrt

from .. import _counts

__all__ = [
    "_get_buffer_donation", "_is_placecholder", "_set_buffer_donation",
    "_xla_create_placeholder_tensor", "_xla_get_enable_alias_with_buffer_donor_config",
    "_xla_set_enable_alias_with_buffer_donor_config",
]  # fmt: skip

_state = {"alias": False}


def _xla_set_enable_alias_with_buffer_donor_config(on: bool) -> None:
    _state["alias"] = on


def _xla_get_enable_alias_with_buffer_donor_config() -> bool:
    return _state["alias"]


def _set_buffer_donation(t: torch.Tensor, should_donate: bool) -> bool:
    """Notes it; False for a value that is not there yet. torch_pjrt gives up what is dead."""
    if t.device.type != "xla" or torch_pjrt.state(t) == "ir":
        return False
    _counts.add("XlaSetBufferDonation")
    t._xla_donated = should_donate  # type: ignore[attr-defined]
    return True


def _get_buffer_donation(t: torch.Tensor) -> bool:
    return bool(getattr(t, "_xla_donated", False))


def _xla_create_placeholder_tensor(shape: Any, dtype: torch.dtype) -> torch.Tensor:
    t = torch.zeros(tuple(shape), dtype=dtype, device="xla")
    t._xla_placeholder = True  # type: ignore[attr-defined]
    return t


def _is_placecholder(t: torch.Tensor) -> bool:
    return bool(getattr(t, "_xla_placeholder", False))
