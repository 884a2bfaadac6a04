"""Reading a whole partition, page by page."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.store.port import Record, Store

PAGE = 500


def every(store: Store, partition: str, prefix: str) -> Iterator[Record]:
    """Every record of the table in `partition` whose sort key begins with `prefix`, which ends in `/`."""
    high = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    cursor: str | None = None
    while True:
        page = store.query("main", partition, low=prefix, high=high, limit=PAGE, cursor=cursor)
        yield from page.records
        cursor = page.cursor
        if cursor is None:
            return
