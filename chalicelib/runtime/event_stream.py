"""Server-sent events: the feed of changes on a connection that stays open.

Each event's data is what a poll would get, so a client reads both in the same way. A stream asks again when a commit is
announced in one of its projects, and waits a moment first, because commits come in groups; and now and then without
one, so that a caller whose token has expired meanwhile is found. Each time the caller is authorised anew.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import orjson

from chalicelib.api.dispatch import Reply
from chalicelib.api.v1 import PREFIX

PATH = f"{PREFIX}changes"
KIND = "text/event-stream"
GATHER, PAUSE = 0.1, 0.2  # seconds: between a commit and the question, and after an answer
BEAT = 20.0  # seconds after which a silent stream shows that it lives, and asks
MOST, MOST_EACH = 256, 12  # streams: of all callers, and of one. Others get an answer, and poll
_HEAD = [(b"content-type", KIND.encode()), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]

_QUALITY = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")

Ask = Callable[[str], Awaitable[Reply]]  # what has changed since a cursor


def wanted(accept: str) -> bool:
    """Does a caller that accepts these types of media want a stream at least as much as the document?"""
    found: dict[str, float] = {}
    for part in accept.split(","):
        kind, *parameters = (each.strip().lower() for each in part.split(";"))
        found[kind] = _quality(parameters)
    document = next((found[each] for each in ("application/json", "application/*", "*/*") if each in found), 0.0)
    return found.get(KIND, 0.0) > 0 and found[KIND] >= document


def _quality(parameters: Sequence[str]) -> float:
    text = next((each[2:] for each in parameters if each.startswith("q=")), "1")
    return float(text) if _QUALITY.fullmatch(text) else 0.0


class Wire(Protocol):
    def begin(self, status: int, headers: list[tuple[bytes, bytes]], *, goes_on: bool) -> None: ...

    async def part(self, part: bytes, *, last: bool) -> None: ...


class EventStreams:
    """The streams that are open."""

    def __init__(self, gather: float = GATHER, pause: float = PAUSE) -> None:
        self._open: Counter[str] = Counter()
        self._gather, self._pause = gather, pause

    def takes(self, caller: str) -> bool:
        return self._open.total() < MOST and self._open[caller] < MOST_EACH

    async def serve(
        self, caller: str, first: Reply, ask: Ask, wire: Wire, rung: asyncio.Event, ends: Callable[[], bool]
    ) -> None:
        """Send the first answer, and what comes later, until the server ends or the caller may see nothing any more."""
        self._open[caller] += 1
        try:
            wire.begin(200, _HEAD, goes_on=False)
            await self._follow(first, ask, wire, rung, ends)
        finally:
            self._open[caller] -= 1
            self._open += Counter()  # forget callers without any

    async def _follow(self, reply: Reply, ask: Ask, wire: Wire, rung: asyncio.Event, ends: Callable[[], bool]) -> None:
        sent = ""
        while not ends() and reply.status == 200:
            document: dict[str, Any] = orjson.loads(reply.body)
            cursor = str(document["cursor"])
            await wire.part(b": \n\n" if cursor == sent else b"data: %b\n\n" % reply.body, last=False)
            sent = cursor
            if not document["more"]:
                await self._rung(rung)
            reply = await ask(cursor)
        failed = b"event: problem\ndata: %b\n\n" % reply.body.replace(b"\n", b" ") if reply.status != 200 else b""
        await wire.part(failed, last=True)

    async def _rung(self, rung: asyncio.Event) -> None:
        await asyncio.sleep(self._pause)
        with suppress(TimeoutError):
            async with asyncio.timeout(BEAT):
                await rung.wait()
            await asyncio.sleep(self._gather)
        rung.clear()
