"""A store that announces every write once it is made.

It serves what this process remembers of the store: the call that makes it stale also drops it. Writes by other
processes to the same file aren't announced, so it is of use only where this process is the only writer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chalicelib.store.port import Change, Store


class AnnouncingStore:
    """`Store`: everything except `commit` is passed to the store below unchanged."""

    def __init__(self, below: Store, heard: Callable[[Sequence[Change]], None]) -> None:
        self.below, self._heard = below, heard
        self.get, self.get_many, self.query, self.scan = below.get, below.get_many, below.query, below.scan
        self.due, self.next_due, self.close = below.due, below.next_due, below.close

    def commit(self, changes: Sequence[Change]) -> None:
        self.below.commit(changes)
        self._heard(changes)
