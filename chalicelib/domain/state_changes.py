"""State changes as a public document: an event of the log, for buses, webhooks and scripts.

The log is internal and may change its form; this document is an interface, so it has a version. Within a version,
fields may be added and `type` may get new values; removing a field or changing its meaning makes a new version. The
document contains data and a sentence made from it, but never a spec: readers get that from the API.

Delivery is at least once and may be out of order: `id` identifies a repetition, and `time` gives the order.
"""

from __future__ import annotations

from typing import Literal

from chalicelib.domain.events import Event, EventType, Target
from chalicelib.domain.instants import iso
from chalicelib.domain.noun import Value

VERSION = 1
LONGEST = 2_000  # characters of a text: a bus takes documents of limited size


class Named(Value):
    id: str
    name: str


class Subject(Value):
    type: str
    id: str
    name: str


class StateChange(Value):
    """What each key means is in the contract, from which the page on state changes is made."""

    version: Literal[1] = 1
    id: str
    time: str
    type: str
    project: Named | None = None
    target: Subject
    others: tuple[Subject, ...] = ()
    before: str | None = None
    after: str | None = None
    reason: str | None = None
    detail: str = ""
    fields: tuple[str, ...] = ()
    message: str
    actor: Named | None = None
    actor_token: str | None = None
    run_id: str | None = None
    fleet_id: str | None = None


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
