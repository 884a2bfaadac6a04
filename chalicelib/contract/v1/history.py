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
    """The whole as a sentence, in words that may change."""
    type: str | None
    """`created`, `status`, `changed`, `deleted`, … as in state changes; null for an old event."""
    before: str | None
    after: str | None
    """The status before and now, or what else has changed."""
    reason: str | None
    """Why, as a fixed word: `stopped_by_user`, `job_failed`, …"""
    detail: str
    """More about the reason, in words that may change."""
    project: str | None
    user: str | None
    """Who did it; null: the control plane itself."""
    token: str | None
    """The name of the access token with which they did it."""
    targets: list[V1Target]


class V1EventPage(TypedDict):
    items: list[V1Event]
    next: str | None
