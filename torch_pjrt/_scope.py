"""Names around recorded ops.

They ride into the program's locations, so that dumps and errors of the plugin show them. They are
no part of the compile key.
"""

import threading
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any

import torch

from . import _C

__all__ = ["ModuleScopes", "scope"]


class scope(ContextDecorator):  # noqa: N801 - used like a function
    """`with torch_pjrt.scope("encoder"):` or `@torch_pjrt.scope("encoder")`; scopes nest."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._before: list[str] = []

    def __enter__(self) -> "scope":
        if torch.compiler.is_compiling():  # names are for lines that run
            return self
        self._before.append(_C.push_scope(self.name))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not torch.compiler.is_compiling():
            _C.set_scope(self._before.pop())


class ModuleScopes(threading.local):
    """Makes the path of each `nn.Module` a scope while it runs forward: "Net/encoder/0".

    `torch_pjrt.module_scopes.on()` and `.off()`; XLA_IR_DEBUG=1 or XLA_HLO_DEBUG=1 switch it on at
    import. It costs about two microseconds a module call, so it is off by default.
    """

    _hooks: tuple[Any, ...] = ()

    def __init__(self) -> None:
        self._stack: list[tuple[torch.nn.Module, str]] = []

    def on(self) -> None:
        """From now on, for all modules and threads."""
        if ModuleScopes._hooks:
            return
        ModuleScopes._hooks = (
            torch.nn.modules.module.register_module_forward_pre_hook(self._enter),
            torch.nn.modules.module.register_module_forward_hook(self._leave, always_call=True),
        )

    def off(self) -> None:
        """Takes the hooks away."""
        for hook in ModuleScopes._hooks:
            hook.remove()
        ModuleScopes._hooks = ()

    def _name(self, module: torch.nn.Module) -> str:
        if self._stack:
            for name, child in self._stack[-1][0].named_children():
                if child is module:
                    return name
        return type(module).__name__

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling():
            return
        self._stack.append((module, _C.push_scope(self._name(module))))

    def _leave(self, module: torch.nn.Module, args: Any, result: Any) -> None:
        if torch.compiler.is_compiling():
            return
        while self._stack:  # a module whose forward raised may have left inner ones behind
            inner, before = self._stack.pop()
            _C.set_scope(before)
            if inner is module:
                return
