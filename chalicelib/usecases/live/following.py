"""Following: what a caller gets next, from the place that it has reached.

A follower first gets the lists whole, page by page, and then what has changed since its first page was read. Its place
says all that the server needs to know of it, so any server can answer it, and none keeps anything. When the caller's
projects have changed, or the place is too old, it begins again.

Where the log has only events, some changes leave no trace there: why a job waits, for instance. So now and then the
things that are alive are compared with what the follower has of them, by a digest; and each of them that it has leaves
a bit in its place, so that one that ended unseen is missed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import orjson

from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.domain.tenants import Project
from chalicelib.domain.touched import Touched
from chalicelib.engine.ports import ChangeLog
from chalicelib.usecases.live import items
from chalicelib.usecases.live.event_changes import EventChanges
from chalicelib.usecases.live.items import Item, Items, Kind
from chalicelib.usecases.ports import SealedPorts

PAGE = 500  # items at once
CHECK: Micros = MINUTE  # between two comparisons of what is alive
STEADY, ACTIVE, MOVING = range(3)  # nothing runs; something does; something starts or ends
POLL_MS = {STEADY: 30_000, ACTIVE: 5_000, MOVING: 2_000}
TAIL_MS = 1_000  # while the caller follows a log
_MOVING = frozenset({"provisioning", "terminating", "deleting"})
_ALIVE = frozenset({"submitted", "running", "pending", "busy"})
_UNSETTLED = {"fleets": "submitted", "instances": "pending", "volumes": "submitted", "gateways": "submitted"}
BITS = 1_024  # in which what is alive is noted
_HEX = re.compile(f"[0-9a-f]{{1,{BITS // 4}}}")
_TICKING = ("cost_usd",)  # fields that change by themselves

Shown = Mapping[str, Any]  # an item as the caller gets it


class FollowPorts(SealedPorts, Protocol):
    @property
    def journal(self) -> ChangeLog | None: ...


class Following(NamedTuple):
    """The place of a follower."""

    mark: str
    scope: str  # a digest of what it may see
    level: int
    checked_at: Micros
    digest: str = ""  # of what was alive then
    alive: str = ""  # the bits of what it has that is alive
    lost: str = ""  # those of which nothing was found then
    page: items.Place | None = None  # the last item of its lists that it has; None: it has all


@dataclass(frozen=True)
class News:
    place: Following
    reset: bool = False  # what the caller has isn't of use any more
    more: bool = False  # more of the lists follows
    items: Sequence[tuple[Kind, Shown]] = ()
    gone: Sequence[tuple[Kind, str]] = field(default=())

    def pause_ms(self, *, tail: bool) -> int:
        """When to ask again."""
        if self.more:
            return 0
        return min(POLL_MS[self.place.level], TAIL_MS if tail else POLL_MS[STEADY])


class Follow:
    """What one caller may follow: these kinds of things of these projects. `show` makes what it gets of an item."""

    def __init__(
        self, plane: FollowPorts, projects: Sequence[Project], kinds: Collection[Kind], show: Callable[[Item], Shown]
    ) -> None:
        self._plane, self._kinds, self._show = plane, kinds, show
        self._projects = {project.id: project for project in projects}
        self._items = Items(plane, self._projects)
        self._log: ChangeLog = plane.journal if plane.journal is not None else EventChanges(plane.store, plane.clock)

    def after(self, place: Following | None) -> News:
        scope = _digest(sorted(self._projects))
        if place is None or place.scope != scope:
            return self._page(Following(self._log.mark(), scope, STEADY, self._plane.clock.now()), reset=True)
        if place.page is not None:
            return self._page(place, reset=False)
        touched = self._log.since(place.mark, self._projects.keys())
        if touched is None:
            return self.after(None)
        news = self._changes(place, touched)
        due = self._plane.clock.now() - place.checked_at >= CHECK
        return self._checked(news) if due else news

    def _page(self, place: Following, *, reset: bool) -> News:
        found = self._items.page(self._kinds, place.page, PAGE)
        shown = self._shown(found)
        more = len(found) == PAGE
        last = items.Place(found[-1].kind, found[-1].created_at, found[-1].id) if more else None
        place = place._replace(level=_highest(place.level, _statuses(found)), page=last)
        return News(self._told(place, found), reset, more, shown)

    def _changes(self, place: Following, touched: Touched) -> News:
        found, gone = self._items.of(touched.units, self._kinds) if touched.units else ([], [])
        place = place._replace(mark=touched.mark, level=_highest(place.level, _statuses(found)))
        return News(self._told(place, found, gone), items=self._shown(found), gone=gone)

    def _checked(self, news: News) -> News:
        """The news, with what is alive if that isn't what the follower has, and what all of it is up to. If it has
        something that isn't alive any more and that no event has named, it begins again."""
        place = news.place._replace(checked_at=self._plane.clock.now())
        if self._log.exact:
            return replace(news, place=place._replace(level=_highest(STEADY, self._items.statuses(self._kinds))))
        found = self._items.alive(self._kinds)
        shown = self._shown(found)
        lost = _bits(place.alive) & ~_spread((item.kind, item.id) for item in found if item.alive)
        if lost & _bits(place.lost):  # twice: an index may lag
            return self.after(None)
        digest = _digest(sorted([kind, *_lasting(each)] for kind, each in shown))
        place = place._replace(level=_highest(STEADY, _statuses(found)), digest=digest, lost=f"{lost:x}")
        place = self._told(place, found)
        if digest == news.place.digest:
            return replace(news, place=place)
        had = {(kind, each["id"]) for kind, each in news.items}
        return replace(
            news, place=place, items=[*news.items, *(each for each in shown if (each[0], each[1]["id"]) not in had)]
        )

    def _shown(self, found: Sequence[Item]) -> list[tuple[Kind, Shown]]:
        return [(item.kind, self._show(item)) for item in found]

    def _told(self, place: Following, found: Sequence[Item], gone: Collection[tuple[Kind, str]] = ()) -> Following:
        """The place once the follower has these, and those no more."""
        if self._log.exact:
            return place
        ended = [*gone, *((item.kind, item.id) for item in found if not item.alive)]
        alive = [(item.kind, item.id) for item in found if item.alive]
        return place._replace(alive=f"{_bits(place.alive) & ~_spread(ended) | _spread(alive):x}")


def level(kind: Kind, status: str) -> int:
    """How much is going on with an item that has this status."""
    if status in _MOVING or status == _UNSETTLED.get(kind):
        return MOVING
    return ACTIVE if kind in ("runs", "instances") and status in _ALIVE else STEADY


def _highest(least: int, statuses: Iterable[tuple[Kind, str]]) -> int:
    return max([least, *(level(*each) for each in statuses)])


def _statuses(found: Iterable[Item]) -> list[tuple[Kind, str]]:
    return [(item.kind, item.status) for item in found]


def _spread(ids: Iterable[tuple[Kind, str]]) -> int:
    """A bit for each of them. Two may share one: then one of them hides that the other is lost."""
    return reduce(or_, (1 << crc32("/".join(each).encode()) % BITS for each in ids), 0)


def _bits(text: str) -> int:
    return int(text, 16) if _HEX.fullmatch(text) else 0


def _lasting(shown: Shown) -> list[Any]:
    return sorted((name, orjson.dumps(value)) for name, value in shown.items() if name not in _TICKING)


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]
