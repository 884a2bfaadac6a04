"""Modules that only tasks need, or few machines: each is imported when something in it is first used.

An agent's start is most of what adding a host costs that host, and the imports are most of the start.
"""

from __future__ import annotations

import importlib
from typing import Any, List

_ROOT = __package__.rpartition(".")[0]  # the agent's package, which has another name in the shipped file


class LazyModule:
    """Stands for a module; for the type checker it is that module. `name`: one of ours begins with a dot and its room,
    such as `.volumes.disks`."""

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
    """Before a process takes on a task's user or its view of the files: it can't import any more then."""
    while pending:
        loaded(pending.pop())
