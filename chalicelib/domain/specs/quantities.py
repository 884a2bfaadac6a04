"""Durations and amounts of memory: `90`, `5m`, `off`; `16GB`, `8GB..32GB`. Seconds and GB once read.

A duration has one unit, never two, and an exact amount means exactly that. Four flavours of duration differ in what
`off` and negative numbers mean, because the fields they serve do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from chalicelib.domain.bounds import LONGEST
from chalicelib.domain.ranges import Range
from chalicelib.domain.specs.reading import Reads, fault, is_number

_DURATION = re.compile(r"(\d+) *([smhdw])")
_INTEGER = re.compile(r"-?\d+")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)(mb|gb|tb)?", re.IGNORECASE)
_POWER = re.compile(r"\d{1,6}(\.\d{1,6})?e\d", re.IGNORECASE)  # YAML takes `1e3` for text
_GB = {"mb": 1 / 1024, "gb": 1.0, "tb": 1024.0}
_MOST_GB = 1e9
_MOST = 1_000_000
_DURATION_HINT = "a whole number and one of s, m, h, d, w: `90s`, `5m`, `2h`, `3d`, `1w`"

_TEXT_DURATION = {
    "$comment": "duration",
    "type": "string",
    "pattern": "^(-?[0-9]+|[0-9]+ *[smhdw])$",
    "examples": ["30s", "5m", "2h", "3d"],
}
_TEXT_OFF = {
    "$comment": "duration or `off`",
    "type": "string",
    "pattern": "^(off|-?[0-9]+|[0-9]+ *[smhdw])$",
    "examples": ["off", "5m", "2h", "3d"],
}
_AMOUNT = r"[0-9]+(\.[0-9]+)? *([mMgGtT][bB])?"
_TEXT_MEMORY = {"$comment": "memory", "type": "string", "pattern": f"^ *{_AMOUNT} *$", "examples": ["16GB", "512MB"]}
_TEXT_MEMORIES = {
    "$comment": "memory or range",
    "type": "string",
    "pattern": rf"^ *({_AMOUNT}( *\.\. *({_AMOUNT})?)?|\.\. *{_AMOUNT}) *$",
    "examples": ["16GB", "24GB..", "40GB..80GB", "..1TB"],
}
_NUMBER = {"type": "number"}
_SWITCH = {"type": "boolean"}


def seconds(written: Any) -> int:
    """The seconds of any duration, which may be negative. Fractions of a second are dropped."""
    if is_number(written):
        if not abs(written) <= LONGEST:  # infinity, and what is no number, too
            raise fault(
                "invalid-duration",
                f"{written} seconds isn't a duration under a hundred years",
                "use `off` for no limit",
            )
        return int(written)
    if isinstance(written, str):
        text = written.strip()
        if _INTEGER.fullmatch(text) and len(text) < 12:
            return seconds(int(text))
        if (found := _DURATION.fullmatch(text)) and len(found[1]) < 12:
            return seconds(int(found[1]) * _SECONDS[found[2]])
        raise fault("invalid-duration", f"`{_cut(written)}` isn't a duration", _duration_hint(text))
    raise fault(
        "invalid-duration", f"expected a duration, got {_kind(written)}", "for example `90`, `5m`, `2h` or `3d`"
    )


def _duration_hint(text: str) -> str:
    if len(text) > 40:  # not meant as one; and searching a megabyte of digits takes minutes
        return _DURATION_HINT
    if _DURATION.fullmatch(text.lower()):
        return f"units are lower-case letters: `{text.lower()}`"
    if len(parts := _DURATION.findall(text.lower())) > 1 and sum(map(len, parts)) <= 24:
        total = sum(int(number) * _SECONDS[unit] for number, unit in parts)
        return f"one unit only: `{total // 60}m`" if total % 60 == 0 else f"one unit only: `{total}s`"
    return _DURATION_HINT


def positive_seconds(written: Any) -> int:
    found = seconds(written)
    if found < 0:
        raise fault("invalid-duration", f"a duration here can't be negative, got {found}", "use `off` for no limit")
    return found


def offable(written: Any) -> int | str | None:
    """`off` and `false` become `off`; `true` counts as unset."""
    if written is False or written == "off":
        return "off"
    return None if written is None or written is True else positive_seconds(written)


def idle(written: Any) -> int | None:
    """`off` is -1, and so is any negative number."""
    if written is False or written == "off":
        return -1
    return None if written is None or written is True else seconds(written)


def inactivity(written: Any) -> int | None:
    """`off` counts as unset."""
    return None if isinstance(written, bool) or written is None or written == "off" else positive_seconds(written)


_Seconds = Annotated[int, Field(ge=0, le=LONGEST)]
_SignedSeconds = Annotated[int, Field(ge=-LONGEST, le=LONGEST)]
Duration = Annotated[_Seconds, Reads(positive_seconds, (_TEXT_DURATION, _NUMBER))]
OffableDuration = Annotated[_Seconds | Literal["off"] | None, Reads(offable, (_TEXT_OFF, _NUMBER, _SWITCH))]
IdleDuration = Annotated[_SignedSeconds | None, Reads(idle, (_TEXT_OFF, _NUMBER, _SWITCH))]
InactivityDuration = Annotated[_Seconds | None, Reads(inactivity, (_TEXT_OFF, _NUMBER, _SWITCH))]


def gigabytes(written: Any, what: str = "memory") -> float:
    """The gigabytes of an amount of `what`."""
    if is_number(written):
        return _limited(written, written, what)
    if isinstance(written, str):
        text = "".join(written.split())
        if (found := _MEMORY.fullmatch(text)) and len(found[1]) < 100:
            return _limited(float(found[1]) * _GB[(found[2] or "gb").lower()], written, what)
        if _POWER.fullmatch(text):
            return _limited(float(text), written, what)
        short = re.fullmatch(r"(\d+(?:\.\d+)?)([mgt])i?b?", text, re.IGNORECASE)
        hint = f"units are MB, GB and TB: `{short[1]}{short[2].upper()}B`" if short else "for example `512MB` or `16GB`"
        raise fault("invalid-memory", f"`{_cut(written)}` isn't an amount of {what}", hint)
    raise fault("invalid-memory", f"expected an amount of {what}, got {_kind(written)}", "for example `16GB`")


def _limited(amount: float, written: Any, what: str) -> float:
    if amount > _MOST_GB:
        raise fault("too-large", f"`{_cut(str(written))}` is too much {what}", f"at most {_MOST_GB:,.0f} GB")
    if not amount >= 0:  # what is no number, too
        raise fault("invalid-memory", f"{written} isn't an amount of {what} in GB", "for example `16GB`")
    return float(amount)


def disk_size(written: Any) -> float:
    return gigabytes(written, "disk space")


def memory_range(written: Any) -> Any:
    return _range(written, gigabytes)


def disk_range(written: Any) -> Any:
    return _range(written, disk_size)


def _range(written: Any, amount: Callable[[Any], float]) -> Any:
    """A range whose bounds have units; `{min, max}` and a `Range` are accepted as well."""
    if isinstance(written, str) and ".." in written:
        low, _, high = written.partition("..")
        return _bounds(low.strip(), high.strip(), amount)
    if isinstance(written, dict):
        return _bounds(written.get("min"), written.get("max"), amount) if written.keys() <= {"min", "max"} else written
    if isinstance(written, Range):
        return written
    exact = amount(written)
    return {"min": exact, "max": exact}


def _bounds(low: Any, high: Any, amount: Callable[[Any], float]) -> dict[str, float | None]:
    return {
        "min": None if low in (None, "") else amount(low),
        "max": None if high in (None, "") else amount(high),
    }


def _not_negative(counted: Range[int]) -> Range[int]:
    if (counted.min or 0) < 0 or max(counted.min or 0, counted.max or 0) > _MOST:
        raise fault("invalid-range", f"{counted} isn't a count", "for example `2`, `2..8` or `4..`")
    return counted


Count = Annotated[Range[int], AfterValidator(_not_negative)]
_Gigabytes = Annotated[float, Field(ge=0, le=_MOST_GB, allow_inf_nan=False)]
Memory = Annotated[_Gigabytes, Reads(gigabytes, (_TEXT_MEMORY,))]
DiskSize = Annotated[_Gigabytes, Reads(disk_size, (_TEXT_MEMORY,))]
_BOUND = {"anyOf": [_TEXT_MEMORY, _NUMBER, {"type": "null"}]}
_BOUNDS = {"type": "object", "properties": {"min": _BOUND, "max": _BOUND}, "additionalProperties": False}
MEMORY_RANGE_FORMS = (_TEXT_MEMORIES, _NUMBER)
MemoryRange = Annotated[Range[float], Reads(memory_range, (*MEMORY_RANGE_FORMS, _BOUNDS))]
DiskRange = Annotated[Range[float], Reads(disk_range, (*MEMORY_RANGE_FORMS, _BOUNDS))]


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _kind(value: Any) -> str:
    """A plain description of a value's type."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"`{str(value).lower()}` (YAML reads yes, no, on and off as true and false)"
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list | tuple) else f"`{value}`"
