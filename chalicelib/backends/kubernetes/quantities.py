"""Quantities as Kubernetes writes them (`500m`, `7910m`, `16Gi`, `1e3`), as whole numbers: thousandths of a CPU, bytes
and devices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache

Amounts = Mapping[str, int]  # by resource: `cpu` in thousandths, everything else in its unit

_QUANTITY = re.compile(r"([+-]?[0-9]*\.?[0-9]+)(?:([eE][+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)")
_SUFFIXES: Mapping[str, Decimal] = {
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("num", -3)},
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}


def parsed(text: str | float) -> Decimal:
    """The exact value. Raises ValueError for what isn't a quantity."""
    found = _QUANTITY.fullmatch(str(text).rstrip("."))
    if found is None:
        raise ValueError(f"{text!r} isn't a quantity")
    number, exponent, suffix = found.groups()
    return Decimal(number + (exponent or "")) * _SUFFIXES.get(suffix or "", Decimal(1))


def available(quantities: Mapping[str, str]) -> dict[str, int]:
    """What a node has, rounded down."""
    return {name: _whole(name, text, ROUND_FLOOR) for name, text in quantities.items()}


def requested(quantities: Mapping[str, str]) -> dict[str, int]:
    """What a container requests, rounded up."""
    return {name: _whole(name, text, ROUND_CEILING) for name, text in quantities.items()}


@lru_cache(4096)  # thousands of pods request the same
def _whole(name: str, text: str | float, rounding: str) -> int:
    value = parsed(text) * (1000 if name == "cpu" else 1)
    return int(value.to_integral_value(rounding))


def total(amounts: Iterable[Amounts]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in amounts:
        for name, amount in each.items():
            found[name] = found.get(name, 0) + amount
    return found


def largest(amounts: Iterable[Amounts]) -> dict[str, int]:
    """For each resource, the largest of them."""
    found: dict[str, int] = {}
    for each in amounts:
        for name, amount in each.items():
            found[name] = max(found.get(name, 0), amount)
    return found
