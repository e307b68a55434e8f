"""Adjusting modules of others: at once where they are imported, else when they will be."""

import importlib.abc
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["after_import"]

Hook = Callable[[Any], None]


class _Loader(importlib.abc.Loader):
    """Runs the module's own loader, which it then leaves in its place, and adjusts the module."""

    def __init__(self, own: Any, hook: Hook) -> None:
        self.own, self.hook = own, hook

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self.own.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.own
        if module.__spec__:
            module.__spec__.loader = self.own
        self.own.exec_module(module)
        self.hook(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self.hooks: dict[str, Hook] = {}

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name not in self.hooks:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec and spec.loader:
                spec.loader = _Loader(spec.loader, self.hooks[name])
                return spec
        return None


_finder = _Finder()


def after_import(name: str, hook: Hook) -> None:
    """Calls `hook(module)` once the module of that name has been executed; now where it has."""
    if name in sys.modules:
        hook(sys.modules[name])
        return
    _finder.hooks[name] = hook
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
