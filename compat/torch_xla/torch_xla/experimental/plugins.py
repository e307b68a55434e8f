"""How plugins register: a subclass of DevicePlugin behind an entry point `torch_xla.plugins`."""

from typing import Any

import torch_pjrt
from torch_pjrt.plugins import Plugin

_made: dict[str, "DevicePlugin"] = {}


class DevicePlugin:
    """A plugin: where its library is, and how it is configured. torch_pjrt reads these."""

    def library_path(self) -> str:
        """The PJRT plugin's file."""
        raise NotImplementedError

    def configure_single_process(self) -> None:
        """Called before the client is made."""

    def configure_multiprocess(self, local_rank: int, local_world_size: int) -> None:
        """Called in each of many processes."""

    def physical_chip_count(self) -> int:
        """How many devices this host has."""
        return 0

    def client_create_options(self) -> dict[str, Any]:
        """Options of the client."""
        return {}

    def requires_xla_coordinator(self) -> bool:
        """Whether processes need the coordination service."""
        return False


def use_dynamic_plugins() -> None:
    """They are used in any case."""


def using_dynamic_plugins() -> bool:
    return True


def register_plugin(name: str, device_plugin: DevicePlugin) -> None:
    """What PJRT_DEVICE=name loads; before the device is used."""
    _made[name.upper()] = device_plugin
    torch_pjrt.plugins.register(
        [
            Plugin(
                name.upper(), device_plugin.library_path(), "register_plugin",
                options=device_plugin.client_create_options(),
                wants_kv=device_plugin.requires_xla_coordinator(),
            )
        ]
    )  # fmt: skip


def default() -> DevicePlugin | None:
    """The one registered for PJRT_DEVICE; None for one that torch_pjrt found itself."""
    return _made.get(torch_pjrt.runtime.device_type().upper())


def register_installed_plugins() -> None:
    """Done when the device is first used."""
