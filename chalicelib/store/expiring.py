"""A store whose events expire: each is written with the time after which it may be dropped.

The operator chooses how long events are kept, so events don't know it. It is added here, to every write, and no writer
of events needs to care. DynamoDB and SQLite then drop what has expired; `engine/erasing.py` deletes the events that
were written before there was a lifetime, or under a longer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, SECOND
from chalicelib.domain.retention import Retention
from chalicelib.store.port import Change, Put, Record, Store


class ExpiringStore:
    """`Store`: everything except `commit` is passed to the store below unchanged."""

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
