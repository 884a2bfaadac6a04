"""Following the log of events where the server is one process: each webhook and each rule by itself, from its cursor.

The store's feed lists the records of events in the order of their commits, so nothing that is committed late is
missed. The cursor is written after each delivery: whoever is killed between the two delivers that one event again, with
the same id.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.state_changes import StateChange
from chalicelib.domain.subscriptions import Subscription
from chalicelib.engine.event_bus import Documents, legible
from chalicelib.engine.ports import Clock, Feed
from chalicelib.errors import DstackError, Refused
from chalicelib.planning.projects import subscriptions
from chalicelib.store import nouns
from chalicelib.store.port import Record, Store

log = logging.getLogger(__name__)

PAGE = 100

ChangeFilter = Callable[[StateChange], bool]
Deliver = Callable[[StateChange], None]  # raises a DstackError if it couldn't


class NotNow(Refused):
    """It couldn't be delivered, and whoever it is for asks us not to try again before `wait` is over."""

    def __init__(self, message: str, wait: Micros) -> None:
        super().__init__(message)
        self.wait = wait


class EventFollower:
    def __init__(
        self, name: str, store: Store, feed: Feed, clock: Clock, meant: ChangeFilter, deliver: Deliver
    ) -> None:
        self.name = name
        self._store, self._feed, self._clock = store, feed, clock
        self._meant, self._deliver = meant, deliver
        self._documents = Documents(store)

    def begin(self) -> None:
        """A new one starts with what happens from now on; one that was there goes on where it was."""
        one = nouns.find(self._store, Subscription, keys.subscription(self.name))
        self._keep(
            Subscription(name=self.name, cursor=self._feed.feed_end()) if one is None else subscriptions.restarted(one)
        )

    def look(self) -> None:
        """Deliver what there is, until an attempt fails."""
        one = nouns.find(self._store, Subscription, keys.subscription(self.name))
        if one is None or not subscriptions.due(one, self._clock.now()):
            return
        while page := self._feed.feed_after(one.cursor, PAGE):
            before = one
            for place, record in page:
                one = self._record(one, record)
                if one.failures:
                    return
                one = subscriptions.passed(one, place)
            if one != before:
                one = self._keep(one)

    def _record(self, one: Subscription, record: Record) -> Subscription:
        """Deliver its events from the one that is next, until an attempt fails. A defect of ours is a failure with
        pauses and an end, like others, or it would be met again twice a second."""
        for event in legible(record)[one.within :]:
            try:
                change = self._documents.of(event)
                if not self._meant(change):
                    one = one.with_(within=one.within + 1)
                    continue
                self._deliver(change)
            except DstackError as error:
                return self._failed(one, record, str(error), error.wait if isinstance(error, NotNow) else 0)
            except Exception as error:
                log.exception("%s: a defect at %s", self.name, record.key)
                return self._failed(one, record, _defect(error), 0)
            one = self._keep(subscriptions.delivered(one))
        return one

    def _failed(self, one: Subscription, record: Record, error: str, wait: Micros) -> Subscription:
        one = self._keep(subscriptions.failed(one, self._clock.now(), error, wait))
        said = "is dead until the server starts again" if one.dead else "is tried again"
        at = f"event {one.within + 1} of {record.key}"
        log.warning("%s: attempt %d at %s failed and %s: %s", self.name, one.failures, at, said, error)
        return one

    def _keep(self, one: Subscription) -> Subscription:
        self._store.commit([nouns.put(one)])
        return one.with_(version=one.version + 1)


def _defect(error: Exception) -> str:
    return f"the server failed at it, which is a defect of its own: {type(error).__name__}"
