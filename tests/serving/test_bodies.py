"""What a door keeps of the bodies that pass it: little, and never for longer than it may have to send them again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from chalicelib.serving.exchange import Body, Exchange, Room

SMALL, LARGE = b"s" * 1000, b"l" * 60_000


def exchange(parts: Sequence[bytes], *, announced: bool = True) -> Exchange:
    """A request whose body comes in these parts."""
    coming = [
        {"type": "http.request", "body": part, "more_body": place + 1 < len(parts)} for place, part in enumerate(parts)
    ]

    async def receive() -> dict[str, Any]:
        return coming.pop(0)

    size = str(sum(map(len, parts))).encode()
    headers = [(b"content-length", size) if announced else (b"transfer-encoding", b"chunked")]
    scope = {"state": {"connection": None}, "method": "POST", "headers": headers}
    return Exchange(scope, receive)


async def sent(body: Body) -> bytes:
    """What a replica gets at an attempt."""
    start = await body.start()
    return b"".join([part async for part in body.pieces()]) if start is None else start


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("parts", [(SMALL,), (SMALL, SMALL), (LARGE, LARGE), (LARGE,) * 40])
@pytest.mark.parametrize("free", [0, 500, 1500, 10**9])
def test_a_body_goes_on_whole_whatever_room_there_is(parts: tuple[bytes, ...], free: int, announced: bool) -> None:
    room = Room(free)
    body = Body(exchange(parts, announced=announced), 10**9, 2**20, room)
    assert asyncio.run(sent(body)) == b"".join(parts)
    assert body.retained == (sum(map(len, parts)) <= min(free, 2**20))
    assert room.left == free - (sum(map(len, parts)) if body.retained else 0)
    if body.retained:
        assert asyncio.run(sent(body)) == b"".join(parts), "it can be sent again"
    body.forget()
    body.forget()
    assert room.left == free and not body.retained


def test_what_was_read_of_a_body_counts_for_as_long_as_it_waits() -> None:
    async def main() -> None:
        both = exchange((SMALL, LARGE))
        both.unread(await both.piece())
        assert both.read == len(SMALL)
        assert await both.piece() == SMALL and both.read == 0
        assert await both.piece() == LARGE

    asyncio.run(main())
