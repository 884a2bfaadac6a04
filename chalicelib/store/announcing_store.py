"""A store that announces every write once it is made.

This keeps the caches of this process valid: the call that makes an entry stale also drops it. Writes by other processes
to the same file aren't announced, so it is of use only where this process is the only writer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chalicelib.store.port import Change, Store


class AnnouncingStore:
    """`Store`: everything except `commit` is passed to the store below unchanged."""

    def __init__(self, below: Store, announce: Callable[[Sequence[Change]], None]) -> None:
        self.below, self._announce = below, announce
        self.get, self.get_many, self.query, self.scan = below.get, below.get_many, below.query, below.scan
        self.due, self.next_due, self.close = below.due, below.next_due, below.close

    def commit(self, changes: Sequence[Change]) -> None:
        self.below.commit(changes)
        self._announce(changes)
