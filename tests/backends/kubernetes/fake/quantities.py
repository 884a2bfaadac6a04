"""Amounts as the API writes them: `7910m`, `16Gi`, `1e3`."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache

PATTERN = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_BINARY = {suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {
    suffix: Decimal(10) ** power
    for suffix, power in {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}.items()
}


@lru_cache(maxsize=4096)
def amount(text: str) -> Decimal:
    """Raises ValueError."""
    match = re.fullmatch(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE])?)", text)
    if match is None:
        raise ValueError(text)
    number, exponent, suffix = match.groups()
    if exponent:
        return Decimal(number + exponent)
    return Decimal(number) * {**_BINARY, **_DECIMAL}[suffix or ""]


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The largest unit of its own family that needs no fraction, as the server writes what it has read."""
    value = amount(text)
    return written(value, binary=text.endswith("i"))


def written(value: Decimal, *, binary: bool = False) -> str:
    if binary and value == value.to_integral_value() and abs(value) >= 1024:
        for suffix, unit in reversed(_BINARY.items()):
            if value % unit == 0:
                return f"{int(value / unit)}{suffix}"
    for suffix, unit in sorted(_DECIMAL.items(), key=lambda each: -each[1]):
        if value % unit == 0 and value:
            return f"{int(value / unit)}{suffix}"
    return "0"
