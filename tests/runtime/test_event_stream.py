"""Changes as server-sent events: each commit reaches an open stream, and a stream ends with the right to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import orjson

from chalicelib.api.dispatch import Reply
from chalicelib.runtime.event_stream import MOST_EACH, EventStreams, wanted


def reply(cursor: str, *, more: bool = False, status: int = 200) -> Reply:
    return Reply(status, {}, orjson.dumps({"cursor": cursor, "more": more}))


@dataclass
class Wire:
    """Keeps what is sent, and rings when something is."""

    sent: list[bytes] = field(default_factory=list)
    ended: bool = False
    grown: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self, status: int, headers: Any, *, goes_on: bool) -> None:
        assert (status, dict(headers)[b"content-type"]) == (200, b"text/event-stream")

    async def part(self, part: bytes, *, last: bool) -> None:
        self.sent += [part] if part else []
        self.ended = self.ended or last
        self.grown.set()

    @property
    def cursors(self) -> list[str]:
        events = [each for each in self.sent if each.startswith(b"data: ")]
        return [orjson.loads(each.removeprefix(b"data: "))["cursor"] for each in events]


async def followed(answers: list[Reply]) -> tuple[Wire, list[str]]:
    """A stream whose questions get these answers; it ends when they do."""
    wire, asked, rung = Wire(), [], asyncio.Event()
    left = iter(answers)
    over = False

    async def ask(cursor: str) -> Reply:
        nonlocal over
        asked.append(cursor)
        found = next(left, None)
        over = found is None
        rung.set()  # as a commit would meanwhile
        return found or reply(cursor)

    rung.set()
    await EventStreams(0.0, 0.0).serve("ann", reply("0", more=True), ask, wire, rung, lambda: over)
    return wire, asked


def test_the_lists_come_at_once_and_then_what_is_new() -> None:
    wire, asked = asyncio.run(followed([reply("1", more=True), reply("2"), reply("3")]))
    assert wire.cursors == ["0", "1", "2", "3"] and asked == ["0", "1", "2", "3"] and wire.ended


def test_nothing_new_is_a_comment() -> None:
    wire, _ = asyncio.run(followed([reply("1"), reply("1")]))
    assert wire.cursors == ["0", "1"] and b": \n\n" in wire.sent


def test_a_stream_ends_with_the_right_to_it() -> None:
    wire, asked = asyncio.run(followed([reply("1"), Reply(401, {}, b'{"status":401}'), reply("2")]))
    assert wire.sent[-1] == b'event: problem\ndata: {"status":401}\n\n' and wire.ended and asked == ["0", "1"]


def test_one_caller_has_a_few_streams_at_most() -> None:
    async def many() -> tuple[bool, bool, bool]:
        streams, rung = EventStreams(0.0, 0.0), asyncio.Event()
        wires = [Wire() for _ in range(MOST_EACH)]

        async def ask(cursor: str) -> Reply:
            return reply(cursor)

        tasks = [
            asyncio.create_task(streams.serve("ann", reply("0"), ask, wire, rung, lambda: False)) for wire in wires
        ]
        for wire in wires:
            await wire.grown.wait()
        full = streams.takes("ann"), streams.takes("bob")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return (*full, streams.takes("ann"))

    assert asyncio.run(many()) == (False, True, True)


def test_a_stream_is_for_who_wants_it_at_least_as_much_as_the_document() -> None:
    for accept in ("text/event-stream", "text/event-stream, application/json", "*/*;q=0.1, Text/Event-Stream;q=0.5"):
        assert wanted(accept), accept
    for accept in (
        "",
        "*/*",
        "application/json, text/event-stream;q=0",
        "application/json, text/event-stream; q=0.5",
        "text/event-stream-of-another-kind",
        "text/event-stream;q=x",
    ):
        assert not wanted(accept), accept
