"""What a project looked like at an instant of the last day, and what happened in it that is worth looking at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from chalicelib.domain import keys
from chalicelib.domain.events import Event, EventType
from chalicelib.domain.instants import HOUR, MINUTE, Micros, iso, sortable
from chalicelib.domain.moments import SHOWN, State
from chalicelib.domain.reasons import JobReason
from chalicelib.domain.tenants import Project
from chalicelib.engine.moments import events_between, newest, present, state_of
from chalicelib.errors import NotFound, Problem, WrongQuery
from chalicelib.store.history import SPAN, events_in
from chalicelib.store.port import Record
from chalicelib.usecases.ports import RecordPorts

SETTLED = 5 * MINUTE  # after which a state doesn't change any more
MOST_MARKS = 1000
PAGE, PAGES = 500, 6  # of the history, for one answer
LONGEST = 2 * SHOWN  # of the time whose marks are asked for
INTERRUPTED = (JobReason.interrupted_by_no_capacity.value, JobReason.instance_unreachable.value)
_WORDS = (b'"failed"', b'"scaled"', b'"changed"', *(f'"{reason}"'.encode() for reason in INTERRUPTED))
MarkKind = Literal["failure", "interruption", "deployment", "scaling"]


@dataclass(frozen=True)
class Mark:
    kind: MarkKind
    event: Event


@dataclass(frozen=True)
class Marks:
    items: Sequence[Mark]  # oldest first
    next_until: Micros | None = None  # the end of the time before them that wasn't looked at


def state_at(plane: RecordPorts, project: Project, at: Micros) -> tuple[State, bool]:
    """The state at an instant, and whether it is final. Raises NotFound where the history doesn't reach."""
    now, read = plane.clock.now(), plane.read
    if at > now:
        raise WrongQuery([Problem("that is in the future", path="at", hint=f"it is {iso(now)}")])
    if at < now - SHOWN - HOUR:
        raise NotFound(f"What was at {iso(at)} is no longer kept.", hint="Ask for an instant of the last 24 hours.")
    base = newest(read, project.id, at)
    if base is not None:
        state = state_of(read, base).after(events_between(read, project.id, base.at, at))
    elif project.created_at >= now - SHOWN - HOUR:
        state = State().after(events_between(read, project.id, 0, at))
    elif not read.store.query("main", keys.events_of(project.id), low=sortable(at + 1), limit=1).records:
        state = present(read, project.id, now)  # nothing has happened since
    else:
        raise NotFound(f"What was at {iso(at)} wasn't recorded.", hint="It is from now on. Ask for a later instant.")
    return state.without_old(at), at < now - SETTLED


def marks(plane: RecordPorts, project: Project, since: Micros | None, until: Micros | None) -> Marks:
    """Failures, interruptions, deployments and scaling of this time: the newest, as far as one answer reads."""
    ends = plane.clock.now() if until is None else until
    begins = ends - SHOWN if since is None else since
    if begins > ends:
        hint = "choose an earlier `since`" if until is not None else f"it is {iso(ends)}"
        raise WrongQuery([Problem("it begins after its end", path="since", hint=hint)])
    if ends - begins > LONGEST:
        raise WrongQuery([Problem("at most 48 hours are shown at once", path="since", hint="choose a later one")])
    records, earlier = _newest_records(plane, project, begins, ends)
    found: list[Mark] = []
    for record in records:
        if any(word in record.body for word in _WORDS):
            seen = (event for event in events_in(record) if max(begins, earlier + 1) <= event.at <= ends)
            found += [Mark(kind, event) for event in seen if (kind := _kind(event)) is not None]
    found.sort(key=lambda mark: (mark.event.at, mark.event.id))
    if len(found) > MOST_MARKS:
        earlier = found[-MOST_MARKS - 1].event.at
        found = [mark for mark in found if mark.event.at > earlier]
    return Marks(found, earlier if earlier >= begins else None)


def _newest_records(plane: RecordPorts, project: Project, begins: Micros, ends: Micros) -> tuple[list[Record], Micros]:
    """Records of the history, and until when there are earlier events that none of them has; -1 if there are none."""
    bounds = {"low": sortable(max(0, begins - SPAN)), "high": sortable(ends + 1)}
    found: list[Record] = []
    cursor: str | None = None
    for _ in range(PAGES):
        page = plane.store.query("main", keys.events_of(project.id), limit=PAGE, cursor=cursor, reverse=True, **bounds)
        found += page.records
        cursor = page.cursor
        if cursor is None:
            return found, -1
    return found, keys.event_at(found[-1].key) + SPAN  # an earlier record's events end before that


def _kind(event: Event) -> MarkKind | None:
    subject = event.targets[0].type if event.targets else ""
    if event.type is EventType.scaled and event.before != event.after:
        return "scaling"
    if event.type is EventType.changed and subject == "run":
        return "deployment"
    if event.type is EventType.status and subject == "run" and event.after == "failed":
        return "failure"
    if event.type is EventType.status and subject == "job" and event.reason in INTERRUPTED:
        return "interruption" if event.after == "terminating" else None
    return None
