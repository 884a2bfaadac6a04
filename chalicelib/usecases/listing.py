"""Reading a whole listing, page by page."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.store.port import Index, Record, Store

PAGE = 500


def every(store: Store, partition: str, prefix: str) -> Iterator[Record]:
    """Every record of the table in `partition` whose sort key begins with `prefix`, which ends in `/`."""
    return all_of(store, "main", partition, low=prefix, high=prefix[:-1] + chr(ord(prefix[-1]) + 1))


def all_of(store: Store, index: Index, partition: str, *, low: str = "", high: str = "") -> Iterator[Record]:
    cursor: str | None = None
    while True:
        page = store.query(index, partition, low=low, high=high, limit=PAGE, cursor=cursor)
        yield from page.records
        cursor = page.cursor
        if cursor is None:
            return
