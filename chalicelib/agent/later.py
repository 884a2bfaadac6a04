"""Modules that only tasks need, or few machines: each is imported when something in it is first used.

An agent's start is most of what adding a host costs that host, and the imports are most of the start.
"""

from __future__ import annotations

import importlib
from typing import Any, List


class Later:
    """Stands for a module; for the type checker it is that module. `name`: of one beside this begins with a dot."""

    def __init__(self, name: str) -> None:
        self._name, self._module = name, None  # type: str, Any
        waiting.append(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(imported(self), name)


waiting: List[Later] = []


def imported(later: Later) -> Any:
    found = later.__dict__
    if found["_module"] is None:
        found["_module"] = importlib.import_module(found["_name"], __package__)
    return found["_module"]


def import_all() -> None:
    """For whoever takes on a task's user or its view of the files, and couldn't import any more then."""
    while waiting:
        imported(waiting.pop())
