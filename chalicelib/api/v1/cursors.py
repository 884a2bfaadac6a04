"""Cursors of lists under `/api/v1`: the row after which the next page begins, as text that only this server reads.

A cursor names its list with its filters, so that one of another list is refused instead of skipping rows there. It
grants nothing: whoever sends it is authorised as without it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping

import orjson

from chalicelib.domain.bounds import LAST_INSTANT
from chalicelib.domain.instants import Micros
from chalicelib.errors import Problem, WrongQuery

FORM = 1
LONGEST = 400  # characters


def encode(listing: str, *position: str | int) -> str:
    text = orjson.dumps([FORM, _mark(listing), *position])
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def decode(cursor: str, listing: str, longest: int = LONGEST) -> list[str | int]:
    """The position. Raises WrongQuery for a text that isn't a cursor of this list."""
    try:
        if len(cursor) > longest:
            raise ValueError("it is too long")
        raw = base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        form, mark, *rest = orjson.loads(raw)
        position: list[str | int] = rest
        if form != FORM or any(type(part) not in (str, int) for part in position):
            raise ValueError("it has another form")
    except (ValueError, TypeError, binascii.Error):
        raise refused() from None
    if mark != _mark(listing):
        raise refused("it belongs to another list, or to this one with other filters")
    return position


def decode_row(cursor: str, listing: str) -> tuple[Micros, str]:
    """The position in a list by time: the date and the id of a row."""
    match decode(cursor, listing):
        case [int(at), str(tie)] if 0 <= at <= LAST_INSTANT and tie:
            return at, tie
    raise refused()


def decode_text(cursor: str, listing: str) -> str:
    """The position in a list whose rows have a text each."""
    match decode(cursor, listing):
        case [str(text)]:
            return text
    raise refused()


def decode_texts(cursor: str, listing: str) -> tuple[str, str]:
    """The position in a list whose rows are in a part of their own each: the part, and a text of the row."""
    match decode(cursor, listing):
        case [str(part), str(text)]:
            return part, text
    raise refused()


def listing(path: str, filters: Mapping[str, str]) -> str:
    """A list: its path and filters, in any order."""
    chosen = sorted((name, value) for name, value in filters.items() if name not in ("cursor", "limit"))
    return orjson.dumps([path, chosen]).decode()


def _mark(listing: str) -> str:
    return hashlib.sha256(listing.encode()).hexdigest()[:12]


def refused(text: str = "it isn't one that this server issued") -> WrongQuery:
    return WrongQuery([Problem(text, path="cursor", hint="begin again without one")])
