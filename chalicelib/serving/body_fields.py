"""Reads a few fields from the beginning of a request's body while it arrives.

The body is passed on unchanged, so nothing here builds values from it: a reader searches for the given fields and stops
at the last of them. It buffers what it has read, to be sent on first, and scans each byte once, however small the
pieces are. In a malformed body it finds nothing.

A megabyte of punctuation takes a second or two, so a reader does a limited number of steps per call, and the caller
lets other work run in between.
"""

from __future__ import annotations

import json
import re
from email.message import Message
from email.parser import BytesHeaderParser
from typing import Protocol

MOST = 1024 * 1024  # bytes of a body that are read for its fields
LONGEST = 4096  # bytes of a field, as it is written
STEPS = 4000  # tokens that are read at a time: in two milliseconds
PARTS = 100  # of a form, among which the fields must be; read at most …
PARTS_AT_ONCE = 10  # … so many at a time

_SIGN = re.compile(rb'["{}\[\],:]')
_SIGN_WITHIN = re.compile(rb'["{}\[\]]')  # in an object or list inside
_IN_TEXT = re.compile(rb'["\\]')


class BodyFields(Protocol):
    """Reads fields from pieces of a body."""

    found: dict[str, str]
    held: bytearray  # everything that was fed
    behind: bool  # whether some of that is still to be read, by feeding an empty piece

    def feed(self, piece: bytes) -> bool:
        """Read on. True: there is nothing more to search for."""
        ...


class JsonHead:
    """Reads string fields at the top level of a JSON object; of two with the same name, the first counts."""

    def __init__(self, *names: str) -> None:
        self.found: dict[str, str] = {}
        self.held = bytearray()
        self.behind = False
        self._names = frozenset(names)
        self._at = 0  # everything before this index was scanned
        self._text: int | None = None  # where the string begins that `_at` is in
        self._depth = 0
        self._field = ""  # the last name at the top level
        self._is_value = False  # between a colon and a comma there
        self._over = False

    def feed(self, piece: bytes) -> bool:
        self.held += piece
        steps = STEPS
        while steps and not self._over and self._step():
            steps -= 1
        self.behind = not (steps or self._over)
        return self._over

    def _step(self) -> bool:
        """Advance to the next significant token; False if it hasn't arrived yet."""
        within = self._text is not None
        sign = (_IN_TEXT if within else _SIGN if self._depth < 2 else _SIGN_WITHIN).search(self.held, self._at)
        if sign is None:
            self._at = len(self.held)
            return False
        if sign[0] == b"\\":
            if sign.end() == len(self.held):  # the escaped character hasn't arrived yet
                self._at = sign.start()
                return False
            self._at = sign.end() + 1
            return True
        self._at = sign.end()
        if within:
            self._end_text()
        elif sign[0] == b'"':
            self._text = sign.start()
        else:
            self._take(sign[0])
        return True

    def _take(self, sign: bytes) -> None:
        self._depth += (sign in b"{[") - (sign in b"}]")
        if self._depth < 1:
            self._over = True
        elif self._depth == 1 and sign in b":,":
            self._is_value = sign == b":"

    def _end_text(self) -> None:
        start, self._text = self._text or 0, None
        if self._depth != 1 or (self._is_value and self._field not in self._names):
            return
        text = _plain(bytes(self.held[start : self._at])) if self._at - start <= LONGEST else ""
        if not self._is_value:
            self._field = text
        elif self._field not in self.found:
            self.found[self._field] = text
            self._over = self.found.keys() == self._names


def _plain(written: bytes) -> str:
    try:
        return str(json.loads(written))
    except ValueError:  # invalid UTF-8 or an invalid escape: the model server will report it
        return ""


class FormHead:
    """Reads fields of a form in parts (`multipart/form-data`)."""

    def __init__(self, content_type: str, *names: str) -> None:
        self.found: dict[str, str] = {}
        self.held = bytearray()
        self.behind = False
        self._names, self._parts = frozenset(names), 0
        self._line = b"--" + _boundary(content_type)
        self._at = 0
        self._part = -1  # where the headers of the part begin; -1: its first line hasn't come

    def feed(self, piece: bytes) -> bool:
        self.held += piece
        until = min(PARTS, self._parts + PARTS_AT_ONCE)
        while self._parts < until and not self._over and self._step():
            self._parts += 1
        self.behind = self._parts == until and not self._over
        return self._over

    @property
    def _over(self) -> bool:
        return self._parts >= PARTS or self.found.keys() == self._names

    def _step(self) -> bool:
        """Advance by one part; False if its end hasn't arrived yet."""
        line = self.held.find(self._line, self._at)
        if line < 0:
            self._at = max(self._at, len(self.held) - len(self._line))
            return False
        if self._part >= 0:
            self._read(bytes(self.held[self._part : min(line, self._part + 2 * LONGEST)]))
        self._part = self._at = line + len(self._line)
        return True

    def _read(self, part: bytes) -> None:
        headers, empty, value = part.lstrip(b"\r\n").partition(b"\r\n\r\n")
        name = BytesHeaderParser().parsebytes(headers).get_param("name", header="content-disposition")
        if empty and name in self._names and name not in self.found:
            self.found[str(name)] = value.removesuffix(b"\r\n").decode(errors="replace")


def _boundary(content_type: str) -> bytes:
    """The delimiter of the parts; if the header doesn't declare one, a text that no body contains."""
    message = Message()
    message["content-type"] = content_type
    return (message.get_boundary() or "\r\n").encode()
