"""The chain of an audit log: each line is an event as JSON, with a hash of itself and of all lines before it.

Whoever changes, removes, adds or moves a line breaks the chain there. Lines that are missing at the end break nothing:
who knows the hash of a later line, kept elsewhere, finds that, too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import orjson

FIRST = "0" * 64  # what the first line follows
_FIELDS = ("number", "place", "event", "previous", "hash")


@dataclass(frozen=True)
class Head:
    """The last line of a chain. `place`: the position in the server's feed up to which all events have their lines. Of
    a record of several events only the last line moves it."""

    number: int = 0
    place: int = 0
    hash: str = FIRST


class Broken(Exception):
    """The chain doesn't hold: in which line, and why."""


def line_of(head: Head, place: int, event: Mapping[str, Any]) -> tuple[bytes, Head]:
    """The next line, with its newline, and the new head."""
    line = {"number": head.number + 1, "place": place, "event": event, "previous": head.hash}
    hashed = _hash(line)
    return orjson.dumps({**line, "hash": hashed}) + b"\n", Head(head.number + 1, place, hashed)


def verified(lines: Iterable[bytes], head: Head | None = None) -> Head:
    """The last line of a chain that holds. Raises Broken for the first line that doesn't."""
    head = head or Head()
    for number, line in enumerate(lines, head.number + 1):
        head = _followed(head, number, line)
    return head


def _followed(head: Head, number: int, line: bytes) -> Head:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise Broken(f"line {number} isn't JSON") from error
    if not isinstance(found, dict) or tuple(found) != _FIELDS or line != orjson.dumps(found) + b"\n":
        raise Broken(f"line {number} isn't written as a server writes it")
    hashed = found.pop("hash")
    if hashed != _hash(found):
        raise Broken(f"line {number} was changed")
    if found["previous"] != head.hash or found["number"] != number:
        raise Broken(f"line {number} doesn't follow the one before: lines were removed, added or moved")
    return Head(number, found["place"], hashed)


def _hash(line: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(line)).hexdigest()


# --- a chain in several files ----------------------------------------------------------------------------------------


def rotated_name(path: PurePath, first: int) -> str:
    """The name of a file that goes on elsewhere, by the number of its first line: by name they are in order."""
    return f"{path.stem}.{first:012d}{path.suffix}"


def rotated(path: PurePath, names: Iterable[str]) -> list[str]:
    """Those of the names that earlier files of the audit log in `path` have, in order."""
    form = re.compile(rf"{re.escape(path.stem)}\.\d{{12}}{re.escape(path.suffix)}")
    return sorted(filter(form.fullmatch, names))
