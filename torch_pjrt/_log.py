"""Messages of the core through Python's `logging`, logger "torch_pjrt".

Level 0 of TORCH_PJRT_DEBUG (always said) is a WARNING, 1 is INFO, the rest DEBUG. Where the program
has set up no logging of its own, they go to stderr as "torch_pjrt: ...".
"""

import logging
import sys

from . import _C

__all__ = ["install", "logger"]

_LEVELS = {0: logging.WARNING, 1: logging.INFO}
logger = logging.getLogger("torch_pjrt")


class _Stderr(logging.Handler):
    """Speaks only while nobody has configured logging."""

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers:
            return
        print(f"torch_pjrt: {record.getMessage()}", file=sys.stderr, flush=True)


def _sink(level: int, text: str) -> None:
    logger.log(_LEVELS.get(level, logging.DEBUG), "%s", text)


def install() -> None:
    """Sends the core's messages to the logger; a second call changes nothing."""
    if not any(isinstance(h, _Stderr) for h in logger.handlers):
        logger.addHandler(_Stderr())
    if logger.level == logging.NOTSET:
        logger.setLevel(_LEVELS.get(_C.dial(), logging.DEBUG))
    _C.set_log(_sink)
