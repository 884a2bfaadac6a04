"""Listings of the table, complete or by page."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from chalicelib.store.port import Index, Record, Store

PAGE = 500


def every(store: Store, partition: str, prefix: str) -> Iterator[Record]:
    """All records in `partition` whose sort key begins with `prefix`, which ends in `/`."""
    return all_of(store, "main", partition, low=prefix, high=prefix[:-1] + chr(ord(prefix[-1]) + 1))


def page_after(store: Store, partition: str, prefix: str, *, after: str, limit: int | None) -> list[Record]:
    """Up to `limit` (None: all) of the records that `every` yields, after the name `after`, in order of names."""
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    found = all_of(store, "main", partition, low=f"{prefix}{after}\0" if after else prefix, high=end)
    return list(islice(found, limit))


def all_of(
    store: Store, index: Index, partition: str, *, low: str = "", high: str = "", reverse: bool = False
) -> Iterator[Record]:
    cursor: str | None = None
    while True:
        page = store.query(index, partition, low=low, high=high, limit=PAGE, cursor=cursor, reverse=reverse)
        yield from page.records
        cursor = page.cursor
        if cursor is None:
            return
