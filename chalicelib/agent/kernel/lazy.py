"""Lazy imports, for modules that only tasks or few machines need: each is imported when it is first used.

Most of what adding a host costs that host is the agent's start, and most of the start is imports.
"""

from __future__ import annotations

import importlib
from typing import Any, List

_ROOT = __package__.rpartition(".")[0]  # the agent's package, which has another name in the shipped file


class LazyModule:
    """A stand-in for a module; the type checker sees the module itself. The `name` of one of the agent's own modules
    begins with a dot and its room, such as `.volumes.disks`."""

    def __init__(self, name: str) -> None:
        self._name, self._module = name, None  # type: str, Any
        pending.append(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(loaded(self), name)


pending: List[LazyModule] = []


def loaded(lazy: LazyModule) -> Any:
    found = lazy.__dict__
    if found["_module"] is None:
        found["_module"] = importlib.import_module(found["_name"], _ROOT)
    return found["_module"]


def load_all() -> None:
    """Import every lazy module, before a process loses access to the sources by becoming a task's user."""
    while pending:
        loaded(pending.pop())
