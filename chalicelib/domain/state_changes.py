"""State changes as a public document: an event of the log, for buses, webhooks and scripts.

The log is internal and may change its form; this document is an interface, so it has a version. Within a version,
fields may be added and `type` may get new values; removing a field or changing its meaning makes a new version. The
document contains data and a sentence made from it, but never a spec: readers get that from the API.

Delivery is at least once and may be out of order: `id` identifies a repetition, and `time` gives the order.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.domain.events import Event, EventType, Target
from chalicelib.domain.instants import iso
from chalicelib.domain.noun import Value

VERSION = 1
LONGEST = 2_000  # characters of a text: a bus takes documents of limited size


class Named(Value):
    """A project or a user."""

    id: str
    name: str


class Subject(Value):
    """What a change is about."""

    type: str = Field(description="`run`, `job`, `fleet`, `instance`, `volume`, `user`, `project`, `secret`, …")
    id: str
    name: str


class StateChange(Value):
    """One change of state."""

    version: Literal[1] = Field(default=1, description="Of this form.")
    id: str = Field(description="A UUID. Each delivery of the same change has the same one.")
    time: str = Field(description="When it happened: an ISO 8601 date with its zone.")
    type: str = Field(
        description="What happened: `created`, `status`, `changed`, `deleted`, … `status` has `before` and `after`."
    )
    project: Named | None = Field(default=None, description="Null for changes of users.")
    target: Subject = Field(description="What has changed.")
    others: tuple[Subject, ...] = Field(default=(), description="What else it is about: the instance that a job got, …")
    before: str | None = Field(default=None, description="The status before.")
    after: str | None = Field(default=None, description="The status now.")
    reason: str | None = Field(default=None, description="Why, as a fixed word: `stopped_by_user`, `job_failed`, …")
    detail: str = Field(default="", description="More about the reason, in words that may change.")
    fields: tuple[str, ...] = Field(default=(), description="The fields that were changed.")
    message: str = Field(description="The whole as a sentence, in words that may change.")
    actor: Named | None = Field(default=None, description="The user who did it. Null: the control plane itself.")
    actor_token: str | None = Field(default=None, description="The name of the access token with which they did it.")
    run_id: str | None = Field(default=None, description="The run that it happened within, if any.")
    fleet_id: str | None = Field(default=None, description="The fleet that it happened within, if any.")


def of(event: Event, project: str | None) -> StateChange:
    """`project`: the name of the event's project."""
    nothing = Target(
        type="project", id=event.project_id, name=project or ""
    )  # of events from before there were targets
    first, *others = map(_subject, event.targets or (nothing,))
    return StateChange.unvalidated(
        id=event.id,
        time=iso(event.at),
        type=(event.type or EventType.changed).value,
        project=Named.unvalidated(id=event.project_id, name=project or "") if event.project_id else None,
        target=first,
        others=tuple(others),
        before=event.before,
        after=event.after,
        reason=event.reason,
        detail=event.detail[:LONGEST],
        fields=event.fields,
        message=event.message[:LONGEST],
        actor=Named.unvalidated(id=event.actor_id, name=event.actor_name or "") if event.actor_id else None,
        actor_token=event.actor_token,
        run_id=event.run_id,
        fleet_id=event.fleet_id,
    )


def _subject(target: Target) -> Subject:
    return Subject.unvalidated(type=target.type, id=target.id, name=target.name)
