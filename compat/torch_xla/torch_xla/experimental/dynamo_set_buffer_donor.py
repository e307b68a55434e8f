"""`torch.ops.xla.dynamo_set_buffer_donor_`: notes that a buffer may be overwritten."""

import torch

from .. import _XLAC
from ._library import define


def _set(t: torch.Tensor, should_donate: bool) -> torch.Tensor:
    _XLAC._set_buffer_donation(t, should_donate)
    return t


define("dynamo_set_buffer_donor_(Tensor t, bool should_donate) -> Tensor", _set)
