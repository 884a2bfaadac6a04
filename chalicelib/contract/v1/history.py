"""Events."""

from __future__ import annotations

from typing_extensions import TypedDict

from chalicelib.contract.values import Date, Id


class V1Target(TypedDict):
    """A thing that an event is about."""

    type: str
    id: str
    name: str


class V1Event(TypedDict):
    id: Id
    at: Date
    text: str
    project: str | None
    user: str | None
    """Who did it; null: the control plane itself."""
    targets: list[V1Target]


class V1EventPage(TypedDict):
    items: list[V1Event]
    next: str | None
