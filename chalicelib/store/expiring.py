"""A store whose events expire: those that are written get the time after which they may be dropped.

An event has no lifetime of its own, because the operator chooses it. So it is given here, on the way of every write,
and no writer of events needs to know. DynamoDB and SQLite then drop what has expired; the sweep (`engine/erasing.py`)
drops older events, from before there was a lifetime or a shorter one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, SECOND
from chalicelib.domain.retention import Retention
from chalicelib.store.port import Change, Put, Record, Store


class ExpiringStore:
    """`Store`: all but `commit` is that of the store below, as it is."""

    def __init__(self, below: Store, retention: Retention) -> None:
        self.below = below
        self._kept = retention.events * DAY
        self.get, self.get_many, self.query, self.scan = below.get, below.get_many, below.query, below.scan
        self.due, self.next_due, self.close = below.due, below.next_due, below.close

    def commit(self, changes: Sequence[Change]) -> None:
        self.below.commit([self._stamped(change) for change in changes])

    def _stamped(self, change: Change) -> Change:
        if not isinstance(change, Put) or not change.key.pk.startswith(keys.EVENTS):
            return change
        return replace(change, record=self._ending(change.record))

    def _ending(self, record: Record) -> Record:
        return replace(record, expires_at=(keys.event_at(record.key) + self._kept) // SECOND)
