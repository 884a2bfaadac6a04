"""Common parts of request bodies."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema

from chalicelib.domain.bounds import LAST_INSTANT
from chalicelib.domain.instants import Micros, from_iso


class RequestBody(BaseModel):
    """A request's envelope. Unknown keys come from later clients and are ignored."""

    model_config = ConfigDict(extra="ignore", defer_build=True)


class NoQuery(RequestBody):
    """A query of which nothing is read."""


def _id(value: Any) -> Any:
    """A UUID in any spelling, as the text in keys."""
    if not isinstance(value, str):
        raise ValueError("should be a UUID as text")
    try:
        return str(UUID(value))
    except ValueError:
        raise ValueError("should be a UUID, for example 6628ef34-2e9a-4af5-aab4-144f175852f7") from None


def _instant(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("should be a date as text")
    try:
        return from_iso(value)
    except (ValueError, OverflowError):
        raise ValueError("should be an ISO date with a zone, for example 2026-11-21T05:11:20.465869+00:00") from None


Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
DATE = {"type": "string", "format": "date-time"}
Id = Annotated[str, BeforeValidator(_id), WithJsonSchema({"type": "string", "format": "uuid"})]
At = Annotated[Micros, BeforeValidator(_instant), Field(ge=0, le=LAST_INSTANT), WithJsonSchema(DATE)]
Num = Annotated[int, Field(ge=0, le=99_999)]  # of a replica or a job
Names = Annotated[list[Name], Field(max_length=100)]  # of things to change at once
Object = dict[str, Any]
