"""The pure part of `logs`: chunks of a log stream, and the pages cut from them. No file, no socket."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from chalicelib.domain.instants import Micros
from chalicelib.errors import Invalid

Piece = tuple[Micros, bytes]

_FOREVER: Micros = 2**62
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


@dataclass(frozen=True, slots=True)
class LogPage:
    records: tuple[Piece, ...]
    next_token: str | None  # None at the end
    resume: str  # where a follower continues, also at the end. With `descending`: the same as next_token, or ""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Records with start <= at < end after `token`, oldest first, or newest first if `descending`."""

    start: Micros = -_FOREVER
    end: Micros = _FOREVER
    token: str | None = None
    limit: int = 1000
    max_bytes: int = 1_000_000
    descending: bool = False

    def __post_init__(self) -> None:
        if self.limit < 1 or self.max_bytes < 1:
            raise Invalid(f"a page of {self.limit} records and {self.max_bytes} bytes.", hint="Ask for at least one.")


EVERYTHING = LogQuery()


class Span(NamedTuple):
    """The part of a chunk from the stream's byte `first` to `last`."""

    place: int
    first: int
    last: int
    low: Micros
    high: Micros
    load: Callable[[], Iterable[tuple[int, Micros, bytes]]]  # the chunk's pieces with their offsets


class Token(NamedTuple):
    place: int
    offset: int

    def __str__(self) -> str:
        return f"{self.place}.{self.offset}"


def token_of(text: str | None) -> Token | None:
    if text is None:
        return None
    place, dot, offset = text.partition(".")
    if not (dot and all(part.isascii() and part.isdecimal() and len(part) <= 18 for part in (place, offset))):
        raise bad_token()
    return Token(int(place), int(offset))


def bad_token() -> Invalid:
    return Invalid("the token isn't one that this server issued for this log.", hint="Start again without a token.")


# --- chunks -----------------------------------------------------------------------------------------------------------

_PIECE = struct.Struct("<qI")  # at, length


def beyond_end(end: int, offset: int, records: Sequence[Piece]) -> list[Piece]:
    """The part of `records`, which begin at `offset`, beyond the stream's `end`; empty if there is a gap."""
    if offset < 0:
        raise Invalid(f"a log offset of {offset}.", hint="Offsets count bytes from 0.")
    if offset > end:
        return []
    beyond: list[Piece] = []
    for at, data in records:
        new = data[max(0, end - offset) :]
        if new:
            beyond.append((at, new))
        offset += len(data)
    return beyond


def packed(pieces: Sequence[Piece]) -> bytes:
    return b"".join(part for at, data in pieces for part in (_PIECE.pack(at, len(data)), data))


def unpacked(payload: bytes, first: int) -> Iterator[tuple[int, Micros, bytes]]:
    """The pieces with their offsets. Agents write such objects themselves, so incomplete pieces are left out."""
    place = 0
    while place + _PIECE.size <= len(payload):
        at, length = _PIECE.unpack_from(payload, place)
        place += _PIECE.size
        yield first, at, payload[place : place + length]
        place += length
        first += length


def page_of(spans: Iterable[Span], query: LogQuery, resume: Token) -> LogPage:
    """One page, cut from spans in the requested order."""
    records: list[Piece] = []
    size = 0
    for span in spans:
        if span.high >= query.start and span.low < query.end:
            for offset, at, data in _pieces(span, query.descending):
                if not query.start <= at < query.end:
                    continue
                room = query.max_bytes - size
                if len(records) < query.limit and len(data) <= room:
                    records.append((at, data))
                    size += len(data)
                    continue
                part = b"" if records else _part(data, room, query.descending)
                if part:
                    records.append((at, part))
                place = offset + len(data) - len(part) if query.descending else offset + len(part)
                token = str(Token(span.place, place))
                return LogPage(tuple(records), token, token)
        resume = Token(span.place, span.last)
    return LogPage(tuple(records), None, "" if query.descending else str(resume))


def _pieces(span: Span, descending: bool) -> Iterable[tuple[int, Micros, bytes]]:
    inside: list[tuple[int, Micros, bytes]] = []
    for offset, at, data in span.load():
        cut = data[max(0, span.first - offset) : max(0, span.last - offset)]
        if cut:
            inside.append((max(offset, span.first), at, cut))
    return reversed(inside) if descending else inside


def _part(data: bytes, room: int, descending: bool) -> bytes:
    """The first (or last) `room` bytes, or up to three fewer so as not to split a character."""
    cut = len(data) - room if descending else room
    step = 1 if descending else -1
    for place in (cut, cut + step, cut + 2 * step, cut + 3 * step):
        if 0 < place < len(data) and data[place] & 0xC0 != 0x80:
            cut = place
            break
    return data[cut:] if descending else data[:cut]


def checked_ids(project_id: str, job_id: str) -> tuple[str, str]:
    for part in (project_id, job_id):
        if not _ID.fullmatch(part):
            raise Invalid(f"{part[:80]!r} isn't an id.", hint="Ids are letters, digits, - and _.")
    return project_id, job_id
