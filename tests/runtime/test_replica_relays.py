"""Relays: a unix socket whose connections become streams of a replica's agent, which the test stands in for."""

from __future__ import annotations

import asyncio
import itertools
import stat
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.streams.websocket import FAILED, NORMAL
from chalicelib.domain.serving import ServedReplica
from chalicelib.runtime.replica_relays import (
    AT_FIRST,
    CLOSE_AFTER,
    FRESH,
    LONGEST_PATH,
    PATIENCE,
    QUIET,
    REMIND_EVERY,
    ReplicaRelay,
    ReplicaRelays,
)
from chalicelib.runtime.streams import StreamBroker
from tests.runtime.test_streams import HEAD, Clock, Side, at_once

REPLICA = ServedReplica(job_id="job-1", instance_id="host-1", port=8000)


class Agent:
    """Dials whatever it is asked to, and keeps its ends. `serve` says what a stream's first bytes get."""

    def __init__(self, folder: Path, loop: asyncio.AbstractEventLoop, most: int = 400) -> None:
        count = itertools.count(1)
        self.streams = StreamBroker(
            lambda: f"id-{next(count)}", lambda: f"token-{next(count)}", most, clock=loop.time, in_thread=at_once
        )
        self.relays = ReplicaRelays(self.streams, self.rung, folder)
        self.rings, self.away = 0, False
        self.orders: list[dict[str, Any]] = []
        self.sides: list[Side] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def rung(self, instances: Iterable[str]) -> None:
        assert list(instances) == ["host-1"]
        self.rings += 1
        if not self.away:
            task = asyncio.get_running_loop().create_task(self.dial())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def dial(self) -> None:
        await asyncio.sleep(0)  # the orders of one turn of the loop come together
        for order in self.streams.orders("host-1"):
            self.orders.append(order)
            self.streams.claim(order["id"], order["ticket"])
            side = Side()
            self.sides.append(side)
            assert await self.streams.meet(order["id"], side, HEAD)

    def echo(self) -> None:
        """What the replicas say is what they hear, once."""
        for side in self.sides:
            while side.received and not side.over:
                side.sends(side.peer.message(side.received.pop(0)))

    @property
    def open(self) -> list[Side]:
        return [side for side in self.sides if not side.over]


async def until(truth: Callable[[], Any], agent: Agent | None = None) -> None:
    for _ in range(20_000):
        if truth():
            return
        if agent is not None:
            agent.echo()
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


async def ask(path: str, agent: Agent, data: bytes = b"hello") -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(data)
    reading = asyncio.ensure_future(reader.readexactly(len(data)))
    await until(reading.done, agent)
    writer.close()
    return await reading


class Timeless(asyncio.SelectorEventLoop):
    """No ticket and no patience ends on it, however slow the machine is."""

    def time(self) -> float:
        return 0.0


def real(story: Callable[[Agent], Coroutine[Any, Any, None]], folder: Path, most: int = 400) -> None:
    async def run() -> None:
        agent = Agent(folder, asyncio.get_running_loop(), most)
        try:
            await story(agent)
        finally:
            agent.relays.forget("job-1")
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=Timeless) as runner:
        runner.run(run())


def test_a_connection_finds_the_replicas_port_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    async def story(agent: Agent) -> None:
        path = agent.relays.socket_path(REPLICA)
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
        assert stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o700
        assert await ask(path, agent) == b"hello"
        (order, *_) = agent.orders
        assert (order["task"], order["target"], order["lazily"]) == ("job-1", "port:8000", True)
        await until(lambda: len(agent.streams) == len(agent.open) == AT_FIRST)
        agent.relays.forget("job-1")
        await until(lambda: not len(agent.streams))
        assert not Path(path).exists()

    real(story, tmp_path)


def test_a_request_finds_a_stream_that_waits(tmp_path: Path) -> None:
    async def story(agent: Agent) -> None:
        path = agent.relays.socket_path(REPLICA)
        await until(lambda: len(agent.open) == AT_FIRST)
        agent.away = True
        for _ in range(AT_FIRST):
            assert await ask(path, agent) == b"hello"

    real(story, tmp_path)


def test_an_agent_that_is_silent_is_asked_for_a_sign(tmp_path: Path) -> None:
    async def story(agent: Agent, relay: ReplicaRelay) -> None:
        loop = asyncio.get_running_loop()
        assert await agent.relays.connected(REPLICA, 1.0), "its first stream has come"
        await asyncio.sleep(FRESH)
        assert await agent.relays.connected(REPLICA, 1.0), "it answers a ping"
        for side in agent.sides:
            side.answers = False
        began = loop.time()
        assert await agent.relays.connected(REPLICA, 1.0) and loop.time() == began, "it has just been heard"
        await asyncio.sleep(FRESH)
        assert not await agent.relays.connected(REPLICA, 1.0) and loop.time() == began + FRESH + 1.0
        for side in agent.sides:
            side.answers = True
        assert await agent.relays.connected(REPLICA, 1.0)

    virtual(story, tmp_path)


def test_an_agent_that_doesnt_dial_gives_no_sign(tmp_path: Path) -> None:
    async def story(agent: Agent, relay: ReplicaRelay) -> None:
        await until(lambda: len(relay._spare) == AT_FIRST)
        agent.away = True
        for side in agent.sides:
            side.cut()
        await until(lambda: not relay._spare)
        assert not await agent.relays.connected(REPLICA, 1.0), "though it was heard a moment ago"
        agent.away = False
        agent.rung(["host-1"])
        assert await agent.relays.connected(REPLICA, 1.0)

    virtual(story, tmp_path)


@pytest.mark.slow
def test_three_hundred_at_once_lose_nothing(tmp_path: Path) -> None:
    async def story(agent: Agent) -> None:
        path = agent.relays.socket_path(REPLICA)
        found = await asyncio.gather(*(ask(path, agent, b"request %d" % n) for n in range(300)))
        assert found == [b"request %d" % n for n in range(300)]
        await until(lambda: len(agent.streams) == len(agent.open))

    real(story, tmp_path, most=2000)


def test_a_response_arrives_whole_before_its_end_and_the_end_arrives(tmp_path: Path) -> None:
    async def story(agent: Agent) -> None:
        reader, writer = await asyncio.open_unix_connection(agent.relays.socket_path(REPLICA))
        writer.write(b"get")
        await until(lambda: any(side.received for side in agent.sides))
        (side,) = [side for side in agent.sides if side.received]
        for _ in range(64):
            side.sends(side.peer.message(bytes(16_384)))
        side.sends(side.peer.close(NORMAL))
        assert len(await reader.read(-1)) == 64 * 16_384
        writer.close()
        await until(lambda: side.over)

    real(story, tmp_path)


def test_a_replica_that_sends_faster_than_its_caller_reads_waits(tmp_path: Path) -> None:
    async def story(agent: Agent) -> None:
        reader, writer = await asyncio.open_unix_connection(agent.relays.socket_path(REPLICA), limit=1024)
        writer.write(b"get")
        await until(lambda: any(side.received for side in agent.sides))
        (side,) = [side for side in agent.sides if side.received]
        sent = 0
        while not side.held:
            side.sends(side.peer.message(bytes(65_536)))
            sent += 65_536
            assert sent < 16 << 20, "somebody keeps all of it"
            await asyncio.sleep(0)
        reading = asyncio.ensure_future(reader.readexactly(sent))
        await until(lambda: reading.done() and not side.held)
        writer.close()

    real(story, tmp_path)


def test_a_caller_that_leaves_ends_its_stream(tmp_path: Path) -> None:
    async def story(agent: Agent) -> None:
        _, writer = await asyncio.open_unix_connection(agent.relays.socket_path(REPLICA))
        writer.write(b"get")
        await until(lambda: any(side.received for side in agent.sides))
        (side,) = [side for side in agent.sides if side.received]
        writer.close()
        await until(lambda: side.over and side.peer.closed is not None)

    real(story, tmp_path)


def test_a_cut_ends_the_callers_and_the_next_one_gets_a_new_stream(tmp_path: Path) -> None:
    async def story(agent: Agent) -> None:
        path = agent.relays.socket_path(REPLICA)
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"get")
        reserve = agent.relays._relays["job-1"]._spare
        await until(lambda: any(side.received for side in agent.sides) and len(reserve) == AT_FIRST)
        for side in agent.open:
            side.cut()
        assert await reader.read() == b""
        writer.close()
        assert await ask(path, agent) == b"hello"

    real(story, tmp_path)


def test_a_place_too_long_for_a_socket_is_replaced_by_a_private_one(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * LONGEST_PATH)
    folder.mkdir()

    async def story(agent: Agent) -> None:
        path = agent.relays.socket_path(REPLICA)
        assert len(path) <= LONGEST_PATH and stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o700
        assert await ask(path, agent) == b"hello"
        agent.relays.remove()
        assert not Path(path).parent.exists()

    real(story, folder)


# --- in virtual time --------------------------------------------------------------------------------------------------


class Someone:
    """A caller that never says a word."""

    def __init__(self, relay: ReplicaRelay) -> None:
        self.relay, self.line, self.patience, self.over = relay, None, None, False  # type: ignore[var-annotated]
        relay.add_caller(self)  # type: ignore[arg-type]

    def join(self, line: Any) -> None:
        self.patience and self.patience.cancel()
        self.line = line
        line.used_by(self)

    def close(self) -> None:
        self.leave()

    def leave(self) -> None:
        if not self.over:
            self.over = True
            asyncio.get_running_loop().call_soon(self._lost)

    def _lost(self) -> None:
        self.relay.remove_caller(self)  # type: ignore[arg-type]
        if self.line is not None:
            self.line.give_up()


def virtual(story: Callable[[Agent, ReplicaRelay], Coroutine[Any, Any, None]], folder: Path) -> None:
    loop = Clock()

    async def run() -> None:
        agent = Agent(folder, loop)
        agent.relays.socket_path(REPLICA)
        relay = agent.relays._relays["job-1"]
        try:
            await story(agent, relay)
        finally:
            relay.close()
            await asyncio.sleep(1)

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


def test_a_caller_waits_so_long_for_an_agent_that_is_away_which_is_reminded(tmp_path: Path) -> None:
    async def story(agent: Agent, relay: ReplicaRelay) -> None:
        await asyncio.sleep(0.1)
        agent.away = True
        assert all(Someone(relay).line is not None for _ in range(AT_FIRST))
        began, rings = asyncio.get_running_loop().time(), agent.rings
        waits = Someone(relay)
        while not waits.over and asyncio.get_running_loop().time() < began + 2 * PATIENCE:
            await asyncio.sleep(0.1)
        assert PATIENCE - 0.1 <= asyncio.get_running_loop().time() - began <= PATIENCE + REMIND_EVERY
        assert agent.rings - rings >= PATIENCE / REMIND_EVERY - 1

    virtual(story, tmp_path)


def test_an_agent_that_is_back_serves_whoever_still_waits(tmp_path: Path) -> None:
    async def story(agent: Agent, relay: ReplicaRelay) -> None:
        await asyncio.sleep(0.1)
        agent.away = True
        *_, waits = (Someone(relay) for _ in range(AT_FIRST + 1))
        await asyncio.sleep(PATIENCE / 2)
        assert waits.line is None
        agent.away = False
        await asyncio.sleep(REMIND_EVERY + 0.1)
        assert waits.line is not None and not waits.over

    virtual(story, tmp_path)


def test_the_reserve_grows_with_those_who_found_none_and_goes_when_nobody_comes(tmp_path: Path) -> None:
    async def story(agent: Agent, relay: ReplicaRelay) -> None:
        await asyncio.sleep(0.1)
        assert len(relay._spare) == AT_FIRST
        people = [Someone(relay) for _ in range(10)]
        await asyncio.sleep(0.1)
        assert all(each.line is not None for each in people)
        grown = len(relay._spare)
        assert grown > AT_FIRST
        for _ in range(20):  # it is used, but the reserve suffices
            relay.touch()
            await asyncio.sleep(QUIET / 2)
        assert len(relay._spare) == 1
        await asyncio.sleep(2 * QUIET)
        assert not relay._spare and len(agent.streams) == 10
        for each in people:
            each.leave()
        await asyncio.sleep(CLOSE_AFTER)
        await asyncio.sleep(QUIET)
        assert relay.closed and not len(agent.streams) and not Path(relay.path).exists()

    virtual(story, tmp_path)


@pytest.mark.slow
def test_an_agent_that_refuses_every_stream_isnt_asked_without_end(tmp_path: Path) -> None:
    async def story(agent: Agent, relay: ReplicaRelay) -> None:
        began = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() - began < QUIET:
            for side in agent.open:
                side.sends(side.peer.close(FAILED, "the job doesn't run"))
            await asyncio.sleep(0.1)
        assert len(agent.orders) <= AT_FIRST * (QUIET / REMIND_EVERY + 2)

    virtual(story, tmp_path)


def test_callers_beyond_what_the_server_may_have_are_sent_away(tmp_path: Path) -> None:
    async def story(agent: Agent) -> None:
        path = agent.relays.socket_path(REPLICA)
        people = [await asyncio.open_unix_connection(path) for _ in range(12)]
        gone = [asyncio.ensure_future(reader.read()) for reader, _ in people]
        await until(lambda: sum(each.done() for each in gone) >= 6)
        served = [writer for (_, writer), each in zip(people, gone, strict=True) if not each.done()]
        assert len(served) == 6
        for _, writer in people:
            writer.close()
        await asyncio.gather(*gone)

    real(story, tmp_path, most=8)


def test_a_crowd_of_them_costs_no_more_than_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(agent: Agent) -> None:
        path = agent.relays.socket_path(REPLICA)
        people = await asyncio.gather(*(asyncio.open_unix_connection(path) for _ in range(100)))
        gone = [asyncio.ensure_future(reader.read()) for reader, _ in people]
        await until(lambda: sum(each.done() for each in gone) >= 94)
        for _, writer in people:
            writer.close()
        await asyncio.gather(*gone)

    real(story, tmp_path, most=8)
    assert len([each for each in caplog.records if "no more streams" in each.message]) == 1


def test_nobody_is_sent_away_whose_stream_is_on_its_way(tmp_path: Path) -> None:
    async def story(agent: Agent) -> None:
        assert await ask(agent.relays.socket_path(REPLICA), agent) == b"hello"

    real(story, tmp_path, most=1)


@pytest.mark.parametrize("times", [2])
def test_a_relay_is_made_once_a_replica(tmp_path: Path, times: int) -> None:
    async def story(agent: Agent) -> None:
        assert len({agent.relays.socket_path(REPLICA) for _ in range(times)}) == 1
        other = REPLICA.with_(job_id="job-2")
        assert agent.relays.socket_path(other) != agent.relays.socket_path(REPLICA)
        agent.relays.forget("job-2")

    real(story, tmp_path)
