"""TPUs of this host, as Lightning asks."""

import torch_pjrt


def num_available_devices() -> int:
    """The device's, of whatever kind."""
    return len(torch_pjrt.devices())


def num_available_chips() -> int:
    return num_available_devices() if torch_pjrt.runtime.device_type() == "TPU" else 0


def get_tpu_env() -> dict[str, str]:
    return {}
