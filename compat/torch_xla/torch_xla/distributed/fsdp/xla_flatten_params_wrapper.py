"""Parameters as one flat one: torch_pjrt keeps them apart."""

from enum import Enum, auto
from typing import Any

import torch

from ..._names import later_class

__all__ = ["FlatParameter", "FlatTypes", "State", "XlaFlattenParamsWrapper", "replace_by_prefix_"]

_INSTEAD = "the module itself: programs take any number of parameters"
XlaFlattenParamsWrapper = later_class(
    "distributed.fsdp.xla_flatten_params_wrapper.XlaFlattenParamsWrapper", _INSTEAD
)


class FlatTypes(Enum):
    """What is flat."""

    PARAM = auto()
    VIEW = auto()


State = dict[str, Any]


class FlatParameter(torch.nn.Parameter):
    """A parameter."""


def replace_by_prefix_(state_dict: dict[str, Any], old_prefix: str, new_prefix: str) -> None:
    """Keys that begin with one begin with the other."""
    if old_prefix == new_prefix:
        raise ValueError("old_prefix and new_prefix must be distinct")
    for key in list(state_dict):
        if key.startswith(old_prefix):
            state_dict[new_prefix + key[len(old_prefix) :]] = state_dict.pop(key)
