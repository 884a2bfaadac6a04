"""What every stored noun has in common: it is frozen, and it knows which version of itself it was read as.

`version` is the optimistic lock: 0 means "must not exist yet", n means "must still be n". A decision changes a noun
with `with_(...)` and hands it back; the engine commits it under that condition. `version` is never part of the stored
body.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field


class Value(BaseModel):
    """A frozen value: compared by content, refused when it has a field we don't know."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def with_(self, **changes: Any) -> Self:
        """A copy with these fields changed. Names are checked: `model_copy` would take a misspelt one silently."""
        unknown = changes.keys() - type(self).model_fields.keys()
        if unknown:
            raise AttributeError(f"{type(self).__name__} has no field {sorted(unknown)}")
        return self.model_copy(update=changes)


class Noun(Value):
    """A stored thing. Unknown fields of a stored body are dropped, so that a rollback of the program can still read."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    version: int = Field(default=0, exclude=True)
