"""The token usage of a model's response, which the model server reports at its end.

Only the last few kilobytes of a response are buffered. If the model server doesn't report it, because the client didn't
request that (`stream_options.include_usage`), the usage stays unknown: the door adds nothing to requests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

KEPT = 4096  # bytes at the end of an answer

_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Tokens:
    prompt: int
    completion: int


class Tail:
    """Observes a response, and buffers its end."""

    def __init__(self) -> None:
        self._good, self._end = False, b""

    def begins(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._good = status == 200

    def part(self, data: bytes) -> None:
        if self._good:
            self._end = data[-KEPT:] if len(data) >= KEPT else (self._end + data)[-KEPT:]

    def tokens(self) -> Tokens | None:
        for found in reversed(list(_USAGE.finditer(self._end))):
            try:
                usage, _ = _DECODER.raw_decode(self._end[found.end() :].decode(errors="replace"))
            except (ValueError, RecursionError):  # cut off, or not a model server's
                continue
            prompt, completion = _count(usage, "prompt", "input"), _count(usage, "completion", "output")
            if prompt is not None:
                return Tokens(prompt, completion or 0)
        return None


def _count(usage: dict[str, object], *words: str) -> int | None:
    for word in words:
        value = usage.get(f"{word}_tokens")
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53:
            return value
    return None
