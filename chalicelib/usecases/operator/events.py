"""Reading history: one stream merged from those of projects, runs or fleets, newest or oldest first.

Every stream is in time order under the same sort key, so they are merged while reading, and a page reads little more
than it shows. A record may hold several events and is sorted by its earliest, so the records of a stream are split, and
an event is held back until no later record can contain an earlier one. Events that the reader may not see are left out,
whatever the filters.

A filter that hardly anything matches would read all history. So one call scans SCANNED events, then returns what it has
found: clients page by the last event they got, so the next call continues there. It reads on, up to MOST, only if it
has found none yet. For clients an empty page is the end, so older matches are then out of reach.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import orjson

from chalicelib.domain import keys
from chalicelib.domain.events import EVERYWHERE, Event
from chalicelib.domain.instants import Micros, sortable
from chalicelib.domain.tenants import GlobalRole, Project, User
from chalicelib.store.history import SPAN, events_in
from chalicelib.store.port import Index, Record, Store

PAGE = 100
FEWEST = 10  # the smallest page of a query, where many streams are merged
SCANNED, MOST = 1_000, 20_000  # events that one call scans: usually, and while it has found nothing
Ids = frozenset[str]
Placed = tuple[str, Event | None]  # an event and its place in the streams; None for a record with none that fits


@dataclass(frozen=True)
class EventFilter:
    """Filters of events; None: no such filter. `actors` may contain None, which is the control plane itself."""

    targets: frozenset[tuple[str, str]] | None = None  # events about one of these things, by type and id
    within_projects: Ids | None = None
    within_runs: Ids | None = None
    within_fleets: Ids | None = None
    within_gateways: Ids | None = None  # events about these gateways and their machines
    target_types: frozenset[str] | None = None
    actors: frozenset[str | None] | None = None
    named: tuple[str, str] | None = None  # events about a thing by type and name, also those that had the name before
    user_name: str | None = None  # what this user did
    by_people: bool | None = None  # what users did, or what the control plane did by itself
    prev_at: Micros | None = None
    prev_id: str | None = None
    limit: int = PAGE
    ascending: bool = False


def list_events(
    store: Store, actor: User, projects: Mapping[str, Project], wanted: EventFilter, *, everywhere: bool = True
) -> list[Event]:
    """A page of events. `projects`: those that the caller may see, by id; `everywhere`: also those of no project."""
    sources = _sources(projects, wanted)
    size = max(FEWEST, PAGE // max(1, len(sources)))  # all streams are begun, however few events a page takes of each
    streams = [_stream(store, index, partition, wanted, size) for index, partition in sources]
    merged = heapq.merge(*streams, key=itemgetter(0), reverse=not wanted.ascending)
    found: dict[str, Event] = {}  # by id: an event may appear in two streams
    for number, (_, event) in enumerate(merged):
        if number >= (SCANNED if found else MOST):
            break
        if event is not None and _seen(event, actor, projects, everywhere) and _fits(event, wanted):
            found[event.id] = event
            if len(found) == wanted.limit:
                break
    return list(found.values())


def _needles(wanted: EventFilter) -> list[tuple[bytes, ...]]:
    """Texts that a record with a matching event must contain, one of each group. Most others needn't be parsed then."""
    targets = None if wanted.targets is None else {id_ for _, id_ in wanted.targets}
    actors = None if wanted.actors is None or None in wanted.actors else wanted.actors
    choices = (
        *(targets, wanted.within_runs, wanted.within_fleets, wanted.within_gateways, wanted.target_types, actors),
        None if wanted.named is None else {wanted.named[1]},
        None if wanted.user_name is None else {wanted.user_name},
    )
    return [tuple(map(orjson.dumps, choice)) for choice in choices if choice is not None]


def deleted_actors(store: Store, events: Sequence[Event]) -> Ids:
    """The ids of actors that have been deleted since."""
    ids = sorted({event.actor_id for event in events if event.actor_id is not None})
    found = store.get_many([keys.user(user_id) for user_id in ids])
    return frozenset(user_id for user_id, record in zip(ids, found, strict=True) if record is None)


def _sources(projects: Mapping[str, Project], wanted: EventFilter) -> list[tuple[Index, str]]:
    """The narrowest streams that contain every requested event."""
    runs, fleets = wanted.within_runs, wanted.within_fleets
    if runs is None and fleets is None and wanted.targets is not None:
        kinds = {kind for kind, _ in wanted.targets}
        ids = frozenset(id_ for _, id_ in wanted.targets)
        runs, fleets = (ids if kinds == {"run"} else None), (ids if kinds == {"fleet"} else None)
    if runs is not None:
        return [("gsi1", keys.run_events(run)) for run in sorted(runs)]
    if fleets is not None:
        return [("gsi2", keys.fleet_events(fleet)) for fleet in sorted(fleets)]
    shown = [project for project in projects if wanted.within_projects is None or project in wanted.within_projects]
    own = [EVERYWHERE] if wanted.within_projects is None else []
    return [("main", keys.event(project, 0, "").pk) for project in (*shown, *own)]


def _stream(store: Store, index: Index, partition: str, wanted: EventFilter, size: int) -> Iterator[Placed]:
    """The events of one stream in order, starting after the previous page."""
    ascending, needles = wanted.ascending, _needles(wanted)
    low, first, last = _bounds(wanted)
    held: list[Placed] = []  # oldest first: a later record may have one that precedes them
    for record in _records(store, index, partition, low, last, size, ascending):
        if ascending:
            surely = bisect_left(held, record.key.sk, key=itemgetter(0))
            yield from held[:surely]
            del held[:surely]
        else:
            surely = bisect_left(held, sortable(keys.event_at(record.key) + SPAN) + "~", key=itemgetter(0))
            yield from reversed(held[surely:])
            del held[surely:]
        for placed in _placed(record, needles):
            if first <= placed[0] and (not last or placed[0] < last):
                insort(held, placed, key=itemgetter(0))
    yield from held if ascending else reversed(held)


def _bounds(wanted: EventFilter) -> tuple[str, str, str]:
    """The sort keys at which reading starts, at which events start to count, and before which both end."""
    if wanted.prev_at is None:
        return "", "", ""
    place = sortable(wanted.prev_at) + (f"#{wanted.prev_id}" if wanted.prev_id else "")
    return (sortable(max(0, wanted.prev_at - SPAN)), place + "~", "") if wanted.ascending else ("", "", place)


def _placed(record: Record, needles: Sequence[tuple[bytes, ...]]) -> list[Placed]:
    if not all(any(needle in record.body for needle in choice) for choice in needles):
        return [(record.key.sk, None)]
    return [(event.place().key.sk, event) for event in events_in(record)]


def _records(
    store: Store, index: Index, partition: str, low: str, high: str, size: int, ascending: bool
) -> Iterator[Record]:
    cursor: str | None = None
    while True:
        page = store.query(index, partition, low=low, high=high, limit=size, cursor=cursor, reverse=not ascending)
        yield from page.records
        cursor, size = page.cursor, PAGE
        if cursor is None:
            return


def _seen(event: Event, actor: User, projects: Mapping[str, Project], everywhere: bool) -> bool:
    if event.project_id != EVERYWHERE:
        return event.project_id in projects
    own = event.actor_id == actor.id or ("user", actor.id) in _targets(event)
    return everywhere and (own or actor.role is GlobalRole.admin)


def _targets(event: Event) -> set[tuple[str, str]]:
    return {(target.type, target.id) for target in event.targets}


def _fits(event: Event, wanted: EventFilter) -> bool:
    targets = _targets(event)
    return (
        (wanted.targets is None or not wanted.targets.isdisjoint(targets))
        and (wanted.within_projects is None or event.project_id in wanted.within_projects)
        and (wanted.within_runs is None or event.run_id in wanted.within_runs)
        and (wanted.within_fleets is None or event.fleet_id in wanted.within_fleets)
        and (wanted.within_gateways is None or _is_of(event, targets, wanted.within_gateways))
        and (wanted.target_types is None or any(target.type in wanted.target_types for target in event.targets))
        and (wanted.actors is None or event.actor_id in wanted.actors)
        and (wanted.named is None or any((each.type, each.name) == wanted.named for each in event.targets))
        and (wanted.user_name is None or event.actor_name == wanted.user_name)
        and (wanted.by_people is None or wanted.by_people == (event.actor_id is not None))
    )


def _is_of(event: Event, targets: set[tuple[str, str]], gateways: Ids) -> bool:
    """Is the event about one of these gateways, or a machine of one?"""
    return event.fleet_id in gateways or any(("gateway", each) in targets for each in gateways)
