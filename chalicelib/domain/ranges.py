"""Ranges: `2`, `2..8`, `2..`, `..8`, or `{min, max}`. An exact value means exactly that, never "at least"."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import ConfigDict, model_validator

from chalicelib.domain.noun import Value

T = TypeVar("T", int, float)


class Range(Value, Generic[T]):
    """Inclusive bounds; either may be open, not both."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    min: T | None = None
    max: T | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Range[T]:
        if self.min is None and self.max is None:
            raise ValueError("a range needs a lower or an upper bound, as in `1..4`, `2..` or `..8`")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"the range {self.min}..{self.max} is upside down")
        return self

    def holds(self, value: float) -> bool:
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)

    def meet(self, other: Range[T]) -> Range[T] | None:
        """The values both hold, or None when there are none."""
        low = max((v for v in (self.min, other.min) if v is not None), default=None)
        high = min((v for v in (self.max, other.max) if v is not None), default=None)
        if low is not None and high is not None and low > high:
            return None
        return Range[Any](min=low, max=high)

    def __str__(self) -> str:
        if self.min == self.max:
            return f"{self.min:g}"
        return ("" if self.min is None else f"{self.min:g}") + ".." + ("" if self.max is None else f"{self.max:g}")
