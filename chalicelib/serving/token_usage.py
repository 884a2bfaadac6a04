"""How many tokens an answer took, as its model server says at the end of it.

Only the last few kilobytes are kept while an answer passes by. A model server that doesn't say, because its client
didn't ask (`stream_options.include_usage`), leaves the number unknown: nothing is added to anybody's request.
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
    """Hears an answer go by, and keeps its end."""

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
            except (ValueError, RecursionError):  # cut off, or not of a model server
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
