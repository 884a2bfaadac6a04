"""What all stored nouns share: they are frozen, and they know the version they were read at.

`version` is the optimistic lock: 0 means "must not exist yet", n means "must still be n". A decision changes a noun
with `with_(...)` and returns it; the engine commits it under that condition. `version` is never part of the stored
body.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field

from chalicelib.domain.keys import Place


class Value(BaseModel):
    """A frozen value: compared by content, refused if it has an unknown field."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def with_(self, **changes: Any) -> Self:
        """A copy with these fields changed. Names are checked: `model_copy` would silently accept a misspelt one.
        Decisions make many copies, so this copies only what a frozen model has."""
        kind, fields = type(self), type(self).__pydantic_fields__
        for name in changes:
            if name not in fields:
                raise AttributeError(f"{kind.__name__} has no field {sorted(changes.keys() - fields.keys())}")
        made = kind.__new__(kind)
        put = object.__setattr__
        put(made, "__dict__", self.__dict__ | changes)
        put(made, "__pydantic_fields_set__", self.__pydantic_fields_set__ | changes.keys())
        put(made, "__pydantic_extra__", None)
        put(made, "__pydantic_private__", None)
        return made


class Noun(Value):
    """A stored thing. Unknown fields of a stored body are dropped, so that an older version can still read it.

    A subclass that events or passes refer to has a `kind`, which is their name for it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    kind: ClassVar[str] = ""

    version: int = Field(default=0, exclude=True)

    def place(self) -> Place:
        """Its keys in the table."""
        raise NotImplementedError(f"{type(self).__name__} has no `place`")
