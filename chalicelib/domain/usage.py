"""The size of a control plane's data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A part of the data. `whole`: False if there are too many files to count them all; the actual size is then
    larger."""

    name: str
    bytes: int
    files: int
    whole: bool = True


@dataclass(frozen=True)
class StorageUsage:
    """The data on this control plane's disk; empty in AWS, which shows sizes itself."""

    parts: tuple[Part, ...] = ()
    free: int | None = None  # bytes left on the disk


Measure = Callable[[], StorageUsage]
