"""Told when a tensor is there."""

import threading
from collections.abc import Callable
from typing import Any

import torch

import torch_pjrt


def on_ready_event(tensor: torch.Tensor) -> threading.Event:
    """An event that is set once the tensor is computed."""
    event = threading.Event()
    on_ready_callback(tensor, lambda _: event.set())
    return event


def on_ready_callback(tensor: torch.Tensor, callback: Callable[[torch.Tensor], Any]) -> None:
    """`callback(tensor)`, in a thread of its own, once what was launched by now has finished."""
    torch_pjrt.sync()

    def run() -> None:
        torch_pjrt.wait()
        callback(tensor)

    threading.Thread(target=run, daemon=True).start()
