"""The private names that code relies on; what the others would do is said where they are called."""

from typing import Any

from . import _devices, _donation, _graphs, _ops, _preemption, _sharding, lowering, profiler
from ._devices import *  # noqa: F403
from ._donation import *  # noqa: F403
from ._graphs import *  # noqa: F403
from ._ops import *  # noqa: F403
from ._preemption import *  # noqa: F403
from ._refused import NAMES as _REFUSED
from ._sharding import *  # noqa: F403

__all__ = [
    *_devices.__all__, *_donation.__all__, *_graphs.__all__, *_ops.__all__,
    *_preemption.__all__, *_sharding.__all__, "lowering", "profiler",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    from .._names import later, later_class

    if name in _REFUSED:
        make = later if name.startswith("_") else later_class
        return make(f"_XLAC.{name}", _REFUSED[name])
    raise AttributeError(f"module 'torch_xla._XLAC' has no attribute '{name}'")
