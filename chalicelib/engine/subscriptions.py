"""Delivers events to webhooks and rules where the server is one process, each subscription from its own cursor.

The store's feed lists the records of events in the order of their commits, so late commits aren't missed. The cursor is
written after each delivery: after a crash between the two, that event is delivered again with the same id.
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
    """The event couldn't be delivered, and the receiver asks for a pause of `wait` before the next attempt."""

    def __init__(self, message: str, wait: Micros) -> None:
        super().__init__(message)
        self.wait = wait


class EventFollower:
    def __init__(
        self, name: str, store: Store, feed: Feed, clock: Clock, concerns: ChangeFilter, deliver: Deliver
    ) -> None:
        self.name = name
        self._store, self._feed, self._clock = store, feed, clock
        self._concerns, self._deliver = concerns, deliver
        self._documents = Documents(store)

    def begin(self) -> None:
        """Start a new subscription with the next event, or continue an existing one at its cursor."""
        one = nouns.find(self._store, Subscription, keys.subscription(self.name))
        self._save(
            Subscription(name=self.name, cursor=self._feed.feed_end()) if one is None else subscriptions.restarted(one)
        )

    def deliver_due(self) -> None:
        """Deliver the outstanding events, until an attempt fails."""
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
                one = self._save(one)

    def _record(self, one: Subscription, record: Record) -> Subscription:
        """Deliver the record's remaining events, until an attempt fails. A bug counts as a failure like others, with
        pauses and a limit; otherwise it would recur twice a second."""
        for event in legible(record)[one.within :]:
            try:
                change = self._documents.of(event)
                if not self._concerns(change):
                    one = one.with_(within=one.within + 1)
                    continue
                self._deliver(change)
            except DstackError as error:
                return self._failed(one, record, str(error), error.wait if isinstance(error, NotNow) else 0)
            except Exception as error:
                log.exception("%s: a defect at %s", self.name, record.key)
                return self._failed(one, record, _defect(error), 0)
            one = self._save(subscriptions.delivered(one))
        return one

    def _failed(self, one: Subscription, record: Record, error: str, wait: Micros) -> Subscription:
        one = self._save(subscriptions.failed(one, self._clock.now(), error, wait))
        next_step = "is dead until the server starts again" if one.dead else "is tried again"
        at = f"event {one.within + 1} of {record.key}"
        log.warning("%s: attempt %d at %s failed and %s: %s", self.name, one.failures, at, next_step, error)
        return one

    def _save(self, one: Subscription) -> Subscription:
        self._store.commit([nouns.put(one)])
        return one.with_(version=one.version + 1)


def _defect(error: Exception) -> str:
    return f"the server failed to deliver it because of a bug: {type(error).__name__}"
