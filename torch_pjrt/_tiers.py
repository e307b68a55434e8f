"""Which graphs are interpreted instead of compiled, in a block or function of one thread."""

from contextlib import ContextDecorator
from types import TracebackType

from . import _C

__all__ = ["tiers"]


class tiers(ContextDecorator):  # noqa: N801 - used like torch.no_grad
    """Which graphs PyTorch's CPU kernels compute instead of a program, in a block of this thread.

    `setting` is one of TORCH_PJRT_TIERS's values: "off", "small", "varying" or "on"
    (docs/tiers.md); the block's syncs and reads follow it, whatever the variable says. Values are
    the same; last bits of floats may differ where a graph is interpreted.

    Raises ValueError for another setting.
    """

    def __init__(self, setting: str) -> None:
        if not setting:
            raise ValueError("tiers: expected off, small, varying or on, found ''")
        self._setting = setting
        _C.exchange_thread_tier(_C.exchange_thread_tier(setting))  # raises here for a wrong one
        self._before: list[str] = []

    def _recreate_cm(self) -> "tiers":  # a decorated function may run in several threads
        return tiers(self._setting)

    def __enter__(self) -> "tiers":
        self._before.append(_C.exchange_thread_tier(self._setting))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _C.exchange_thread_tier(self._before.pop())
