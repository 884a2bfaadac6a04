"""What all stored nouns share: they are frozen, and they know the version they were read at.

`version` is the optimistic lock: 0 means "must not exist yet", n means "must still be n". A decision changes a noun
with `with_(...)` and returns it; the engine commits it under that condition. `version` is never part of the stored
body.
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from chalicelib.domain.keys import Place


class Value(BaseModel):
    """A frozen value: compared by content, and refused if it has an unknown field.

    Input is validated (`Value(...)`, `model_validate`). Decisions create thousands of values whose types the type
    checker has verified, so `unvalidated` and `with_` check only names and completeness. All fields of a value from
    `unvalidated` count as set (`model_fields_set`), which matters only for what users write.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def unvalidated(cls, **fields: Any) -> Self:
        """A value whose fields have the right types already: not validated. Raises TypeError on a wrong or missing
        name."""
        unset, required, names = _fields_of(cls)
        values = unset | fields
        if len(values) > len(names) or required.difference(fields):
            wrong = sorted((values.keys() - names) | (required - fields.keys()))
            raise TypeError(f"{cls.__name__} can't be made: {', '.join(wrong)} is unknown or missing")
        return _assembled(cls, values, names)

    def with_(self, **changes: Any) -> Self:
        """A copy with these fields changed. Names are checked, because `model_copy` accepts a misspelt one silently."""
        values = self.__dict__ | changes
        if len(values) > len(self.__dict__):
            raise AttributeError(f"{type(self).__name__} has no field {sorted(changes.keys() - self.__dict__.keys())}")
        return _assembled(type(self), values, self.__pydantic_fields_set__.union(changes), self.__pydantic_extra__)


V = TypeVar("V", bound=Value)
_set_values = vars(BaseModel)["__dict__"].__set__
_set_fields_set = vars(BaseModel)["__pydantic_fields_set__"].__set__
_set_extra = vars(BaseModel)["__pydantic_extra__"].__set__
_set_private = vars(BaseModel)["__pydantic_private__"].__set__


def _assembled(kind: type[V], values: dict[str, Any], given: set[str], extra: dict[str, Any] | None = None) -> V:
    """A frozen model, assembled without running its validators."""
    value = object.__new__(kind)
    _set_values(value, values)
    _set_fields_set(value, given)
    _set_extra(value, extra)
    _set_private(value, None)
    return value


@cache
def _fields_of(kind: type[Value]) -> tuple[dict[str, Any], frozenset[str], set[str]]:
    """Every field with its default, in order; the required fields; and the names of all, as a set that values share."""
    fields = kind.__pydantic_fields__.items()
    return (
        {name: field.get_default(call_default_factory=True) for name, field in fields},
        frozenset(name for name, field in fields if field.is_required()),
        {name for name, _ in fields},
    )


class Noun(Value):
    """A stored record. Unknown fields of a stored body are dropped, so that an older version can still read it.

    A subclass that events or passes refer to has a `kind`, the name that they use for it. `in_run` or `in_fleet` say to
    which run or fleet its events belong.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    kind: ClassVar[str] = ""
    in_run: ClassVar[str] = ""  # the field with the id of the run that it belongs to
    in_fleet: ClassVar[str] = ""  # the same for a fleet

    version: int = Field(default=0, exclude=True)

    def place(self) -> Place:
        """Its keys in the table."""
        raise NotImplementedError(f"{type(self).__name__} has no `place`")

    def parent(self) -> tuple[str, str, str] | None:
        """The kind, id and name of the noun to which its events belong as well, because people don't know this one."""
        return None
