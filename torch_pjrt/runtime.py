"""The client: which plugin runs, on what. All but `is_running` start it."""

import os
from typing import cast

from . import _C

__all__ = ["device_count", "device_type", "devices", "is_running", "platform", "platform_version"]


def is_running() -> bool:
    """Whether the client has been started."""
    return _C.client_exists()


def device_type() -> str:
    """What PJRT_DEVICE says, or its default."""
    return os.environ.get("PJRT_DEVICE") or "CPU"


def device_count() -> int:
    """How many devices the client has."""
    return _C.device_count()


def platform() -> str:
    """The plugin's name for itself."""
    return str(_C.client_info()["platform"])


def platform_version() -> str:
    """The plugin's version text."""
    return str(_C.client_info()["platform_version"])


def devices() -> list[dict[str, object]]:
    """For each device: id, kind and the plugin's text."""
    return cast(list[dict[str, object]], _C.client_info()["devices"])
