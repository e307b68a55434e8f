"""Frameworks that pick a device themselves and do not know xla: told once, or helped.

accelerate (and with it transformers' Trainer) and Lightning would train on the CPU without a word.
Where `as_accelerator()` is on they get xla; else the first that chooses the CPU is warned about.
Their modules are adjusted when they are imported.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

from . import _C, _accelerator
from ._imports import after_import
from ._log import logger

__all__ = ["install"]

_told = False


def _tell(framework: str, instead: str) -> None:
    global _told  # noqa: PLW0603 - once a process
    if _told:
        return
    _told = True
    where = _C.user_frame()
    logger.warning(
        "%s chooses the CPU%s: it does not know the device xla\n"
        "  try: torch_pjrt.as_accelerator() before it is made; or, to stay on the CPU, %s",
        framework,
        f" ({where})" if where else "",
        instead,
    )


# ---- accelerate -----------------------------------------------------------------------------


@contextlib.contextmanager
def _without_variable() -> Iterator[None]:
    """It heeds the variable even where the program asks for the CPU."""
    ours = os.environ.pop(_accelerator.VARIABLE, "") if _accelerator.is_on() else ""
    try:
        yield
    finally:
        if ours:
            os.environ[_accelerator.VARIABLE] = ours


def _adjust_accelerate(module: ModuleType) -> None:
    state: Any = module.PartialState
    init, default_device = state.__init__, state.default_device.fget

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        asked = args[0] if args else kwargs.get("cpu", False)
        with _without_variable() if asked else contextlib.nullcontext():
            init(self, *args, **kwargs)

    def chosen(self: Any) -> Any:
        device = default_device(self)
        if device.type == "cpu":
            _tell("accelerate", "Accelerator(cpu=True), or TrainingArguments(use_cpu=True)")
        return device

    state.__init__ = __init__
    state.default_device = property(chosen, doc=default_device.__doc__)


def _synced(step: Callable[..., Any]) -> Callable[..., Any]:
    """An optimizer's step ends a step: the framework's own loop would never sync."""

    @functools.wraps(step)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = step(self, *args, **kwargs)
        if _accelerator.is_on():
            _C.sync(False)
        return result

    return wrapped


def _adjust_accelerate_optimizer(module: ModuleType) -> None:
    optimizer: Any = module.AcceleratedOptimizer
    optimizer.step = _synced(optimizer.step)


# ---- Lightning ------------------------------------------------------------------------------


def _on_xla(base: type) -> type:
    """Lightning's idea of the device, on its own base class."""

    class XLA(base):  # type: ignore[misc]
        def setup_device(self, device: torch.device) -> None:
            pass

        def teardown(self) -> None:
            pass

        @staticmethod
        def parse_devices(devices: Any) -> int:
            if devices not in ("auto", -1, "-1", 1, "1", [0]):
                raise ValueError(f"Lightning trains on one device of xla, not on {devices!r}")
            return 1

        @staticmethod
        def get_parallel_devices(devices: int) -> list[torch.device]:
            return [torch.device("xla", i) for i in range(devices)]

        @staticmethod
        def auto_device_count() -> int:
            return 1

        @staticmethod
        def is_available() -> bool:
            return torch.xla.is_available()  # type: ignore[attr-defined,no-any-return]

        @staticmethod
        def name() -> str:
            return "xla"

        def get_device_stats(self, device: Any) -> dict[str, Any]:
            return _C.memory_info(torch.device(device).index or 0)

    return XLA


def _adjust_lightning(module: ModuleType) -> None:
    connector: Any = getattr(module, "_AcceleratorConnector", None) or vars(module)["_Connector"]
    xla, single = _on_xla(module.Accelerator), module.SingleDeviceStrategy
    synced = type("SingleXLA", (single,), {"optimizer_step": _synced(single.optimizer_step)})
    auto, strategy = connector._choose_auto_accelerator, connector._choose_strategy

    def _choose_auto_accelerator() -> Any:
        chosen = auto()
        if chosen == "cpu" and _accelerator.is_on():
            return xla()
        if chosen == "cpu":
            _tell("Lightning", 'accelerator="cpu"')
        return chosen

    @functools.wraps(strategy)
    def _choose_strategy(self: Any) -> Any:
        if isinstance(self._accelerator_flag, xla) and self._num_nodes_flag == 1:
            return synced(device=self._parallel_devices[0])
        return strategy(self)

    connector._choose_auto_accelerator = staticmethod(_choose_auto_accelerator)
    connector._choose_strategy = _choose_strategy


# ---- when they are imported -----------------------------------------------------------------

_ADJUST: dict[str, Callable[[ModuleType], None]] = {
    "accelerate.state": _adjust_accelerate,
    "accelerate.optimizer": _adjust_accelerate_optimizer,
    "lightning.pytorch.trainer.connectors.accelerator_connector": _adjust_lightning,
    "pytorch_lightning.trainer.connectors.accelerator_connector": _adjust_lightning,
    "lightning.fabric.connector": _adjust_lightning,
    "lightning_fabric.connector": _adjust_lightning,
}


def _adjust(module: ModuleType) -> None:
    """A version that is built otherwise stays as it is."""
    try:
        _ADJUST[module.__name__](module)
    except Exception as error:
        logger.info("%s is left as it is: %s: %s", module.__name__, type(error).__name__, error)


def install() -> None:
    """Adjusts what is imported, and the rest when it will be."""
    for name in _ADJUST:
        after_import(name, _adjust)
