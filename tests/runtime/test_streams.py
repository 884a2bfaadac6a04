"""Tickets and pairs in virtual time, on connections that keep what they are told."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from chalicelib.agent.streams.websocket import Closed, Peer, handshake_response, parse_head
from chalicelib.errors import Forbidden, Refused
from chalicelib.runtime.streams import (
    CHECK_RIGHTS_EVERY,
    CLOSE_SECONDS,
    PATIENCE,
    PING_EVERY,
    RESEND_AFTER,
    SILENCE,
    TICKET_SECONDS,
    StreamBroker,
    StreamEnd,
)

HOST, ORDER = "host-1", {"task": "job-1", "target": "ssh"}
HEAD = handshake_response("dGhlIHNhbXBsZSBub25jZQ==")


class Clock(asyncio.SelectorEventLoop):
    """An event loop in which waiting costs nothing: where nothing else is to do, time moves on to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 0.0

    def time(self) -> float:
        return self.at

    def _run_once(self) -> None:
        scheduled = [timer.when() for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        if not self._ready and scheduled:  # type: ignore[attr-defined]
            self.at = max(self.at, min(scheduled))
        super()._run_once()  # type: ignore[misc]


@dataclass
class Side:
    """One connection, and whoever is at its other end."""

    peer: Peer = field(default_factory=lambda: Peer(client=True))
    end: StreamEnd | None = None
    heads: list[bytes] = field(default_factory=list)
    received: list[bytes] = field(default_factory=list)
    raw: int = 0
    held: bool = False
    over: str = ""

    def upgrade(self, head: bytes, end: StreamEnd) -> None:
        self.heads.append(head)
        self.end, end.wire = end, self

    def write(self, data: bytes) -> None:
        assert not self.over, "nothing is written to a connection that was closed"
        self.raw += len(data)
        parts, back = self.peer.receive(data)
        self.received += parts
        if back and self.answers:
            asyncio.get_running_loop().call_soon(self.sends, back)

    answers: bool = True

    def sends(self, data: bytes) -> None:
        if not self.over and self.end is not None:
            self.end.received(data)

    def hold(self, hold: bool) -> None:
        self.held = hold

    def close(self) -> None:
        self._over("closed")

    def leave(self) -> None:
        self._over("aborted")

    def cut(self) -> None:
        self._over("cut")

    def _over(self, how: str) -> None:
        if not self.over:
            self.over = how
            if self.end is not None:
                asyncio.get_running_loop().call_soon(self.end.lost)


def played(story: Coroutine[Any, Any, None], loop: Clock) -> None:
    try:
        loop.run_until_complete(asyncio.wait_for(story, 100_000))
    finally:
        loop.close()


def streams_on(loop: Clock, most: int = 100) -> StreamBroker:
    count = itertools.count(1)
    return StreamBroker(
        lambda: f"id-{next(count)}", lambda: f"token-{next(count)}", most, clock=loop.time, in_thread=at_once
    )


async def at_once(work: Callable[[], list[Any]]) -> list[Any]:
    return work()


async def joined(streams: StreamBroker, may: Callable[[], bool] = lambda: True) -> tuple[Side, Side]:
    stream = streams.open(HOST, "ann", ORDER, may)
    (order,) = streams.orders(HOST)
    client, agent = Side(), Side()
    waiting = asyncio.ensure_future(streams.wait(stream, client, HEAD))
    streams.claim(stream, order["ticket"])
    assert await streams.meet(stream, agent, HEAD) and await waiting
    return client, agent


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


# --- tickets ----------------------------------------------------------------------------------------------------------


def test_an_order_goes_to_its_host_with_a_ticket_and_is_told_again_after_a_while() -> None:
    loop = Clock()
    streams = streams_on(loop)
    stream = streams.open(HOST, "ann", ORDER, lambda: True)
    assert streams.orders("host-2") == []
    (order,) = streams.orders(HOST)
    assert order == {**ORDER, "id": stream, "ticket": order["ticket"]} and order["ticket"].startswith(f"{HOST}.")
    assert streams.orders(HOST) == []  # in flight
    loop.at += RESEND_AFTER
    assert streams.orders(HOST) == [order]
    streams.claim(stream, order["ticket"])
    loop.at += RESEND_AFTER
    assert streams.orders(HOST) == []
    loop.close()


def test_a_ticket_is_good_once_for_its_stream_and_for_a_while() -> None:
    loop = Clock()
    streams = streams_on(loop)
    one, two = streams.open(HOST, "ann", ORDER, lambda: True), streams.open(HOST, "ann", ORDER, lambda: True)
    first, second = streams.orders(HOST)
    for stream, ticket in ((one, second["ticket"]), (one, ""), (one, "é"), ("id-9", first["ticket"])):
        with pytest.raises(Forbidden):
            streams.claim(stream, ticket)
    streams.claim(one, first["ticket"])
    with pytest.raises(Forbidden):
        streams.claim(one, first["ticket"])
    loop.at += TICKET_SECONDS
    with pytest.raises(Forbidden):
        streams.claim(two, second["ticket"])
    assert streams.orders(HOST) == []
    loop.close()


def test_there_are_so_many_streams_and_one_user_has_three_quarters_of_them() -> None:
    loop = Clock()
    streams = streams_on(loop, most=8)
    for _ in range(6):
        streams.open(HOST, "ann", ORDER, lambda: True)
    with pytest.raises(Refused, match="you have all"):
        streams.open(HOST, "ann", ORDER, lambda: True)
    for _ in range(2):
        streams.open(HOST, "bob", ORDER, lambda: True)
    with pytest.raises(Refused, match="the server has all"):
        streams.open(HOST, "bob", ORDER, lambda: True)
    loop.at += TICKET_SECONDS  # nobody came for them
    streams.open(HOST, "ann", ORDER, lambda: True)
    assert len(streams) == 1
    loop.close()


def test_a_client_whose_agent_doesnt_come_waits_so_long_and_leaves_nothing() -> None:
    loop = Clock()
    streams = streams_on(loop)

    async def story() -> None:
        client = Side()
        stream = streams.open(HOST, "ann", ORDER, lambda: True)
        assert not await streams.wait(stream, client, HEAD)
        assert loop.at == PATIENCE and len(streams) == 0 and client.heads == []
        assert not await streams.meet(stream, Side(), HEAD)

    played(story(), loop)


def test_an_agent_whose_client_has_left_is_told_so() -> None:
    loop = Clock()
    streams = streams_on(loop)

    async def story() -> None:
        stream = streams.open(HOST, "ann", ORDER, lambda: True)
        waiting = asyncio.ensure_future(streams.wait(stream, Side(), HEAD))
        await settle()
        streams.claim(stream, streams.orders(HOST)[0]["ticket"])
        waiting.cancel()
        await settle()
        assert not await streams.meet(stream, Side(), HEAD) and len(streams) == 0
        unheard = streams.open(HOST, "ann", ORDER, lambda: True)  # its client never came to wait
        streams.claim(unheard, streams.orders(HOST)[0]["ticket"])
        assert not await streams.meet(unheard, Side(), HEAD) and len(streams) == 0

    played(story(), loop)


# --- pairs ------------------------------------------------------------------------------------------------------------


def test_bytes_go_both_ways_once_both_have_their_101() -> None:
    loop = Clock()
    streams = streams_on(loop)

    async def story() -> None:
        client, agent = await joined(streams)
        assert client.heads == agent.heads == [HEAD] and " 101 " in parse_head(HEAD)[0]
        client.sends(client.peer.message(b"to the job"))
        agent.sends(agent.peer.message(b"from ") + agent.peer.message(b"the job"))
        assert (agent.received, client.received) == ([b"to the job"], [b"from the job"])

    played(story(), loop)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("how", ["close", "cut", "broken"])
def test_whatever_ends_one_side_ends_the_other_after_what_was_sent(first: int, how: str) -> None:
    loop = Clock()
    streams = streams_on(loop)

    async def story() -> None:
        sides = await joined(streams)
        one, other = sides[first], sides[1 - first]
        name = ("client", "host")[first]
        one.sends(one.peer.message(b"last"))
        if how == "close":
            one.sends(one.peer.close(1000, "enough"))
        elif how == "cut":
            one.cut()
        else:
            one.sends(b"\xff\xff\xff")
        await settle()
        closed = {
            "close": Closed(1000, "enough"),
            "cut": Closed(1001, f"the {name}'s connection was lost"),
            "broken": Closed(1001, f"the {name} broke the protocol"),
        }
        assert other.received == [b"last"] and other.peer.closed == closed[how]
        assert one.over == ("cut" if how == "cut" else "closed") and other.over == "closed"
        assert len(streams) == 0
        at = loop.at
        await asyncio.sleep(1000)  # no timer is left to do anything
        assert loop.at == at + 1000

    played(story(), loop)


def test_whoever_doesnt_read_holds_the_other_and_nobody_else() -> None:
    loop = Clock()
    streams = streams_on(loop)

    async def story() -> None:
        client, agent = await joined(streams)
        bystanders = await joined(streams)
        assert client.end is not None
        client.end.full(True)
        assert agent.held and not client.held and not any(side.held for side in bystanders)
        client.end.full(False)
        assert not agent.held

    played(story(), loop)


def test_a_side_that_never_reads_again_is_cut_after_a_while() -> None:
    loop = Clock()
    streams = streams_on(loop)

    async def story() -> None:
        client, agent = await joined(streams)
        client.answers = False
        assert client.end is not None
        client.end.full(True)
        agent.cut()
        await asyncio.sleep(CLOSE_SECONDS - 1)
        assert len(streams) == 1 and not client.over
        await asyncio.sleep(2)
        assert len(streams) == 0 and client.over == "aborted"

    played(story(), loop)


def test_pings_keep_it_open_and_one_that_answers_none_is_gone_in_the_end() -> None:
    loop = Clock()
    streams = streams_on(loop)

    async def story() -> None:
        client, agent = await joined(streams)
        await asyncio.sleep(10 * SILENCE)
        assert len(streams) == 1 and client.raw and agent.raw
        agent.answers = False
        await asyncio.sleep(SILENCE + 2 * PING_EVERY)
        assert agent.over == "aborted" and client.peer.closed == Closed(1001, "the host's connection was lost")
        assert len(streams) == 0

    played(story(), loop)


def test_pings_to_a_side_that_doesnt_read_dont_pile_up() -> None:
    loop = Clock()
    streams = streams_on(loop)

    async def story() -> None:
        client, agent = await joined(streams)
        assert client.end is not None
        client.end.full(True)
        before = client.raw
        client.sends(client.peer.ping() * 500)
        await asyncio.sleep(10 * PING_EVERY)
        assert client.raw == before and not agent.over

    played(story(), loop)


def test_whoever_loses_the_right_loses_the_stream_and_nobody_else_does() -> None:
    loop = Clock()
    streams = streams_on(loop)
    right = [True]

    async def story() -> None:
        client, agent = await joined(streams, lambda: right[0])
        bystanders = await joined(streams)
        await asyncio.sleep(3 * CHECK_RIGHTS_EVERY)
        client.sends(client.peer.message(b"mine"))
        assert agent.received == [b"mine"]
        right[0] = False
        await asyncio.sleep(CHECK_RIGHTS_EVERY + 1)
        assert client.peer.closed == agent.peer.closed == Closed(1001, "you may reach this job no longer")
        assert client.over == agent.over == "closed"
        assert len(streams) == 1 and not any(side.over for side in bystanders)

    played(story(), loop)


def test_when_rights_change_nobody_waits_for_the_next_look() -> None:
    """And there is another look if something changes while a look is under way."""
    loop = Clock()
    rights = {"ann": True, "bob": True}
    checks = 0

    async def in_thread(check: Callable[[], Any]) -> Any:
        nonlocal checks
        checks += 1
        found = check()
        if checks == 1:
            rights["bob"] = False
            streams.check_rights()
            await settle()
        return found

    ids = itertools.count(1)
    streams = StreamBroker(
        lambda: f"id-{next(ids)}", lambda: f"token-{next(ids)}", clock=loop.time, in_thread=in_thread
    )
    streams.check_rights()  # before there are any it does nothing

    async def story() -> None:
        ann, _ = await joined(streams, lambda: rights["ann"])
        bob, _ = await joined(streams, lambda: rights["bob"])
        rights["ann"] = False
        streams.check_rights()
        await asyncio.sleep(1)
        assert ann.over == bob.over == "closed" and len(streams) == 0
        assert checks == 2 and loop.time() < CHECK_RIGHTS_EVERY

    played(story(), loop)


def test_whoever_lost_the_right_before_the_host_dials_gets_no_stream() -> None:
    loop = Clock()
    streams = streams_on(loop)
    right = [True]

    async def story() -> None:
        stream = streams.open(HOST, "ann", ORDER, lambda: right[0])
        (order,) = streams.orders(HOST)
        right[0] = False
        with pytest.raises(Forbidden):
            streams.claim(stream, order["ticket"])

    played(story(), loop)


def test_a_look_that_fails_is_followed_by_another(caplog: pytest.LogCaptureFixture) -> None:
    loop = Clock()
    streams = streams_on(loop)
    answers = iter([True, OSError("the disk is away"), True, False])  # the first is for the agent's ticket

    def may() -> bool:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return bool(answer)

    async def story() -> None:
        client, _ = await joined(streams, may)
        await asyncio.sleep(2 * CHECK_RIGHTS_EVERY + 1)
        assert not client.over and "the disk is away" in caplog.text
        await asyncio.sleep(CHECK_RIGHTS_EVERY)
        assert client.over == "closed" and len(streams) == 0

    played(story(), loop)


def test_a_look_that_fails_for_one_saves_no_other(caplog: pytest.LogCaptureFixture) -> None:
    loop = Clock()
    streams = streams_on(loop)

    def unreadable() -> bool:
        raise OSError("its record is damaged")

    async def story() -> None:
        stays, _ = await joined(streams, unreadable)
        right = [True]
        goes, _ = await joined(streams, lambda: right[0])
        right[0] = False
        await asyncio.sleep(CHECK_RIGHTS_EVERY + 1)
        assert not stays.over and goes.over == "closed" and "its record is damaged" in caplog.text

    played(story(), loop)


def test_a_server_that_stops_says_so_to_both() -> None:
    loop = Clock()
    streams = streams_on(loop)

    async def story() -> None:
        client, agent = await joined(streams)
        for side in (client, agent):
            assert side.end is not None
            side.end.leave("the server is stopping")
        await settle()
        assert client.peer.closed == agent.peer.closed == Closed(1001, "the server is stopping")
        assert client.over == agent.over == "closed" and len(streams) == 0

    played(story(), loop)


def test_what_a_gateway_asks_for_is_told_once_and_not_for_ever() -> None:
    now = 0.0
    streams = StreamBroker(lambda: "s", lambda: "t", clock=lambda: now)
    order = {"id": "x", "ticket": "y", "task": "job-1", "target": "port:80", "gateway": "http://g"}
    streams.pass_on(HOST, order)
    assert streams.orders("another") == []
    assert streams.orders(HOST) == [order]
    assert streams.orders(HOST) == []
    streams.pass_on(HOST, order)
    now = TICKET_SECONDS
    assert streams.orders(HOST) == []
