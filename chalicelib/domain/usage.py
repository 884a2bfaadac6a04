"""How much room a control plane's data takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A part of the data. `whole`: False if there are too many files to count them all; it then takes more room."""

    name: str
    bytes: int
    files: int
    whole: bool = True


@dataclass(frozen=True)
class StorageUsage:
    """What is kept where this control plane can see it; nothing in AWS, which shows sizes itself."""

    parts: tuple[Part, ...] = ()
    free: int | None = None  # bytes left on the disk


Measure = Callable[[], StorageUsage]
