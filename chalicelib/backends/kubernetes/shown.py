"""Amounts of resources as people read them."""

from __future__ import annotations

import math

GIB = 1 << 30
_UNITS = {"cpu": ("CPUs", 1000), "memory": ("GB of memory", GIB), "ephemeral-storage": ("GB of disk", GIB)}


def shown(resource: str, amount: float) -> str:
    """The number alone."""
    return number(amount / _UNITS.get(resource, ("", 1))[1])


def shown_of(resource: str, amount: float) -> str:
    return f"{shown(resource, amount)} {_UNITS.get(resource, (resource, 1))[0]}"


def number(amount: float) -> str:
    return f"{math.floor(amount * 10) / 10:g}"
