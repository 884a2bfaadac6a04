"""Ranges: `2`, `2..8`, `2..`, `..8`, or `{min, max}`. An exact value means exactly that, never "at least"."""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

from pydantic import ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from chalicelib.domain.bounds import MOST_AMOUNT
from chalicelib.domain.noun import Value

T = TypeVar("T", int, float)

_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")


class Range(Value, Generic[T]):
    """Inclusive bounds; one may be open, but not both."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    min: T | None = None
    max: T | None = None

    @model_validator(mode="before")
    @classmethod
    def _read(cls, written: Any) -> Any:
        if isinstance(written, str):
            low, dots, high = (part.strip() for part in written.partition(".."))
            bounds = [bound for bound in (low, high) if bound] if dots else [low]
            if not all(map(_NUMBER.fullmatch, bounds)):
                raise _wrong(f"`{written[:40]}` isn't a number or a range", "for example `2`, `1..4`, `2..` or `..8`")
            return {"min": low or None, "max": high or None} if dots else {"min": low, "max": low}
        if isinstance(written, int | float) and not isinstance(written, bool):
            return {"min": written, "max": written}
        if isinstance(written, dict | Range):
            return written
        shown = (
            "nothing" if written is None else "a list" if isinstance(written, list | tuple) else f"`{written}`".lower()
        )
        raise _wrong(f"expected a number or a range, got {shown}", "for example `2`, `1..4`, `2..` or `..8`")

    @model_validator(mode="after")
    def _ordered(self) -> Range[T]:
        for bound in (self.min, self.max):
            if bound is not None and not -MOST_AMOUNT <= bound <= MOST_AMOUNT:  # nor is `nan` within
                raise _wrong(f"`{bound:g}` is more than anything here can have")
        if self.min is None and self.max is None:
            raise _wrong("a range needs a lower or an upper bound, as in `1..4`, `2..` or `..8`")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise _wrong(f"the range {self} is the wrong way round", f"write `{self.max:g}..{self.min:g}`")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        text = {"type": "string", "pattern": r"^ *(-?[0-9.]+|-?[0-9]* *\.\. *-?[0-9]*) *$", "examples": ["1..4", "2.."]}
        return {"anyOf": [handler(core), {"type": "number"}, text]}

    def holds(self, value: float) -> bool:
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)

    def meet(self, other: Range[T]) -> Range[T] | None:
        """The values in both, or None if there are none."""
        low = self.min if other.min is None else other.min if self.min is None else max(self.min, other.min)
        high = self.max if other.max is None else other.max if self.max is None else min(self.max, other.max)
        if low is not None and high is not None and low > high:
            return None
        for one in (self, other):  # usually one lies within the other
            if (one.min, one.max) == (low, high):
                return one
        return self.with_(min=low, max=high)

    def __str__(self) -> str:
        if self.min == self.max:
            return f"{self.min:g}"
        return ("" if self.min is None else f"{self.min:g}") + ".." + ("" if self.max is None else f"{self.max:g}")


def _wrong(message: str, hint: str = "") -> PydanticCustomError:
    found = [("invalid-range", message, hint, "")]
    return PydanticCustomError("invalid-range", "{message}", {"message": message, "faults": found})
