"""Every op when it is called."""

from typing import Any

import torch_pjrt
from torch_pjrt import _C


def eager_mode(enable: bool) -> None:
    """For all threads."""
    torch_pjrt.eager_mode(enable)


def is_eager_mode() -> bool:
    return _C.eager_mode()


def eager_mode_context(enable: bool) -> Any:
    """For a block."""
    return torch_pjrt.eager_mode(enable)
