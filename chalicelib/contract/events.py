"""Events, and state changes in the form in which webhooks send them."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from chalicelib.contract.values import Date, Id

TargetType = Literal[
    "project", "user", "fleet", "instance", "run", "job", "volume", "gateway", "gateway-replica", "secret", "preset"
]
AnyTarget = Literal[TargetType, "workflow", "gang", "backend", "automation", "certificate"]
"""Also those that events don't list, because clients of this protocol don't know them."""


class EventTarget(TypedDict):
    type: TargetType
    project_id: Id | None
    project_name: str | None
    is_project_deleted: bool | None
    id: str
    name: str


class Event(TypedDict):
    """What happened, when, and to what."""

    id: Id
    message: str
    recorded_at: Date
    actor_user_id: Id | None
    """Null: the control plane itself."""
    actor_user: str | None
    actor_token: str | None
    """The name of the access token with which they did it."""
    is_actor_user_deleted: bool | None
    targets: list[EventTarget]


class Named(TypedDict):
    """A project or a user."""

    id: str
    name: str


class Subject(TypedDict):
    """What a change is about."""

    type: str
    """`run`, `job`, `fleet`, `instance`, `volume`, `user`, `project`, `secret`, …"""
    id: str
    name: str


class StateChange(TypedDict):
    """One change of state. Fields may be added, and `type` may get new values, without a new version."""

    version: Literal[1]
    """Of this form."""
    id: Id
    """A UUID. Each delivery of the same change has the same one."""
    time: Date
    """When it happened: an ISO 8601 date with its zone."""
    type: str
    """`created`, `status`, `changed`, `deleted`, … `status` has `before` and `after`."""
    project: Named | None
    """Null for changes of users."""
    target: Subject
    """What has changed."""
    others: list[Subject]
    """What else it is about: the instance that a job got, …"""
    before: str | None
    """The status before."""
    after: str | None
    """The status now."""
    reason: str | None
    """Why, as a fixed word: `stopped_by_user`, `job_failed`, …"""
    detail: str
    """More about the reason, in words that may change."""
    fields: list[str]
    """The fields that were changed."""
    message: str
    """The whole as a sentence, in words that may change."""
    actor: Named | None
    """The user who did it. Null: the control plane itself."""
    actor_token: str | None
    """The name of the access token with which they did it."""
    run_id: str | None
    """The run that it happened within, if any."""
    fleet_id: str | None
    """The fleet that it happened within, if any."""
