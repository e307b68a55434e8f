"""Eager mode: a cut after every op."""

from types import TracebackType

from . import _C

__all__ = ["eager_mode"]


class eager_mode:  # noqa: N801 - used like torch.no_grad and torch.set_grad_enabled
    """Runs every op when it is called, as PyTorch does on other devices.

    `eager_mode(True)` switches it on for all threads; `with eager_mode():` for a block, and puts
    back what was before. Programs come from the same cache and stay asynchronous; values are lazy
    mode's. For debugging, and for code whose graphs never repeat. Switching on runs what is
    pending.
    """

    def __init__(self, on: bool = True) -> None:
        self.before = _C.set_eager_mode(on)

    def __enter__(self) -> "eager_mode":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _C.set_eager_mode(self.before)
