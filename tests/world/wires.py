"""Connections without sockets: a function in this process answers what a client would send over HTTP."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

Answer = Callable[[str, str, Mapping[str, str], bytes], tuple[int, bytes]]  # method, path, headers, body


class Response(NamedTuple):
    status: int
    data: bytes
    will_close: bool = False

    def read(self) -> bytes:
        return self.data

    def close(self) -> None:
        """Nothing of it is open."""


class Wire:
    """As much of an `http.client.HTTPConnection` as the command line uses."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._response: Response

    def request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> None:
        self._response = Response(*self._answer(method, path, headers, body or b""))

    def getresponse(self) -> Response:
        return self._response

    def close(self) -> None:
        """Nothing is open."""


def to(url: str, answer: Answer) -> Callable[[SplitResult], Wire]:
    """Connects to the address that `answer` serves; there is nothing at any other."""
    place = urlsplit(url).netloc

    def dial(parts: SplitResult) -> Wire:
        if parts.netloc != place:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return Wire(answer)

    return dial
