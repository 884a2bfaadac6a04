"""Keeps the books of each project: what days that are over cost, and what it looks like every quarter of an hour.

A turn is bounded by time, and the next one goes on where it stopped. A first count reads a month of history, and may
outlast the function that does it. So the place is stored before a count of several days: such a project is tried again,
then with its last day only, and at last left behind until the next round, so that it never holds up the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, SECOND, Micros
from chalicelib.domain.rounds import BooksPlace
from chalicelib.engine.cost_days import FIRST, close_days, days_due
from chalicelib.engine.moments import store_moment
from chalicelib.engine.ports import Clock
from chalicelib.engine.read import Reader
from chalicelib.errors import Conflict, StorageFull
from chalicelib.store import nouns
from chalicelib.store.listing import all_of

log = logging.getLogger(__name__)

PATIENCE: Micros = 30 * SECOND  # after which a turn begins with no further project
TRIES = 3  # of a project's count; the last is for one day only


def keep_books(read: Reader, clock: Clock) -> None:
    """One turn. What fails of a project is logged, left to the next turn, and holds up no other."""
    _apart("keeping the books", partial(_turn, read, clock))


def _turn(read: Reader, clock: Clock) -> None:
    found = {each.key.sk: each for each in all_of(read.store, "main", keys.BOOKS.pk, low=keys.BOOKS.sk, high="name0")}
    stored = found.pop(keys.BOOKS.sk, None)
    place = BooksPlace() if stored is None else nouns.read(BooksPlace, stored)
    until, begin = clock.now() + PATIENCE, place.after
    after = begin
    for sort, record in found.items():
        name = sort.removeprefix("name/")
        if name <= begin:
            continue
        if clock.now() >= until:
            _store(read, place, BooksPlace(after=after))
            return
        project_id = nouns.pointed(record)
        tries = place.tries + 1 if place.counting == name else 1
        due = days_due(read, clock, project_id)
        if due > 1:
            place = _store(read, place, BooksPlace(after=after, counting=name, tries=tries))
        if due:
            _count(read, clock, project_id, tries)
        _apart(f"storing a moment of {project_id}", partial(store_moment, read, clock, project_id))
        after = name
    if place.version:
        _store(read, place, BooksPlace())  # the next turn begins a new round


def _store(read: Reader, last: BooksPlace, place: BooksPlace) -> BooksPlace:
    """Raises Conflict if another process keeps the books at the same time."""
    if place == last.with_(version=0):
        return last
    read.store.commit([nouns.put(place.with_(version=last.version))])
    return place.with_(version=last.version + 1)


def _count(read: Reader, clock: Clock, project_id: str, tries: int) -> None:
    if tries > TRIES:
        log.error("the costs of %s can't be counted: it takes longer than a turn may", project_id)
        return
    most = FIRST if tries < TRIES else DAY
    _apart(f"counting the costs of {project_id}", partial(close_days, read, clock, project_id, most))


def _apart(what: str, work: Callable[[], object]) -> None:
    try:
        work()
    except Conflict:
        log.info("%s: another process was faster", what)
    except StorageFull as error:
        log.error("%s failed: %s", what, error)
    except Exception:  # a bug, or the store
        log.exception("%s failed", what)
