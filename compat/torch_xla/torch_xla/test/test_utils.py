"""What training scripts print."""

import time
from typing import Any


def now(format: str = "%H:%M:%S") -> str:
    return time.strftime(format, time.gmtime())


def print_training_update(
    device: Any, step: int, loss: Any, rate: float, global_rate: float, epoch: int | None = None,
    summary_writer: Any = None,
) -> None:  # fmt: skip
    value = loss.item() if hasattr(loss, "item") else loss
    head = "" if epoch is None else f"Epoch={epoch} "
    print(
        f"| Training Device={device} {head}Step={step} Loss={value:.5f} Rate={rate:.2f} "
        f"GlobalRate={global_rate:.2f} Time={now()}",
        flush=True,
    )


def print_test_update(
    device: Any, accuracy: float | None, epoch: int | None = None, **_: Any
) -> None:
    head = "" if epoch is None else f"Epoch={epoch} "
    tail = "" if accuracy is None else f"Accuracy={accuracy:.2f} "
    print(f"| Test Device={device} {head}{tail}Time={now()}", flush=True)


def get_summary_writer(logdir: Any) -> None:
    """None: nothing is written."""


def write_to_summary(summary_writer: Any, *args: Any, **kwargs: Any) -> None:
    """Nothing is written."""


close_summary_writer = write_to_summary


def mp_test(func: Any) -> Any:
    """A test that runs here: it is this package's device that it needs, and has."""
    return func
