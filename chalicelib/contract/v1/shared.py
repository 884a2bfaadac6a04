"""Problems, and what a write would do."""

from __future__ import annotations

from typing import Literal

from typing_extensions import NotRequired, TypedDict


class V1ProblemPart(TypedDict):
    """One thing that is wrong with a request."""

    detail: str
    pointer: str
    """A JSON pointer into the body; empty: the request as a whole, or `parameter`."""
    parameter: NotRequired[str]
    """Of the query."""
    code: str
    """A kind of mistake; the reference of errors has an entry for each."""
    hint: str | None
    """How to mend it."""
    line: NotRequired[int]
    """In a text that was sent."""


class V1Problem(TypedDict):
    """Problem details, as in RFC 9457."""

    type: str
    title: str
    status: int
    code: str
    """The kind of problem, for programs."""
    detail: str
    hint: str | None
    """What to do about it."""
    errors: list[V1ProblemPart]


class V1Change(TypedDict):
    """What a request would do. Nothing was changed."""

    action: Literal["none", "create", "change", "stop", "abort", "delete"]
    """`none`: everything is so already."""
