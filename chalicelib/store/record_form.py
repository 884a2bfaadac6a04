"""The form in which records are stored, as a number, and whether those of a store are of a newer release.

A release that stores something otherwise has a higher form, and a record for each form says that it was there. So a
release before it sees with one read that these records aren't for it: it would drop what it doesn't know.
"""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.domain import keys
from chalicelib.domain.keys import Key
from chalicelib.errors import DataTooNew
from chalicelib.store.listing import all_of
from chalicelib.store.port import Put, Record, Store

FORM = 2  # increased whenever `engine/record_upgrades.py` has something new to upgrade


def newest_form(renewals: Iterable[Key]) -> int:
    """0: the records are older than forms, or there are none yet."""
    return max((int(key.sk) for key in renewals), default=0)


def form_of(store: Store) -> int:
    return newest_form(record.key for record in all_of(store, "main", keys.renewal(0).pk))


def check_form(store: Store, hint: str) -> None:
    """Raises DataTooNew for records of a newer release. For a function's start: it reads one record."""
    if store.get(keys.renewal(FORM + 1)) is not None:
        raise DataTooNew(
            f"The records here are of a newer version of this program: this version knows their forms up to {FORM}.",
            hint=hint,
        )


def announce_form(store: Store) -> None:
    """Have earlier releases refuse these records from now on, whether anything is upgraded yet or not."""
    there = {record.key for record in all_of(store, "main", keys.renewal(0).pk)}
    wanted = [keys.renewal(form) for form in range(1, FORM + 1)]  # each, because an earlier release asks for its next
    store.commit([Put(Record(key, 1, b"{}"), expect=0) for key in wanted if key not in there])
