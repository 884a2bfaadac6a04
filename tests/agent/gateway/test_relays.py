"""Whoever comes to a gateway as an agent. Streams as such are in `tests/serving/test_gateway_streams_real.py`."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.gateway.relays import (
    DIALLED,
    FRESH,
    PATH,
    PATIENCE,
    PROOF,
    Arrival,
    GatewayRelay,
    GatewayRelays,
    ReplicaAddress,
    place,
)
from chalicelib.agent.streams.stream_loop import StreamLoop
from chalicelib.agent.streams.websocket import Peer
from chalicelib.contract.agent_gateway import GatewayStream

NOW = 1000.0


def test_a_caller_that_says_nothing_is_turned_away(tmp_path: Path) -> None:
    relays = GatewayRelays(str(tmp_path), lambda orders: None)
    relays.loop = StreamLoop(lambda: NOW)
    caller, near = socket.socketpair()
    with caller:
        arrival = Arrival(relays, near)
        arrival.check(NOW + PATIENCE - 0.1)
        assert relays.loop.watched == {arrival}
        arrival.check(NOW + PATIENCE)
        assert caller.makefile("rb").read().startswith(b"HTTP/1.1 408 ") and not relays.loop.watched
    relays.loop.close()


def test_what_comes_behind_a_head_is_passed_on_whole(tmp_path: Path) -> None:
    relays, add_stream = GatewayRelays(str(tmp_path), lambda orders: None), list[tuple[str, bytes]]()
    relays.loop = StreamLoop(lambda: NOW)

    class Relay(GatewayRelay):
        def __init__(self) -> None:
            """Of no service."""

        def add_stream(self, stream: str, near: socket.socket, early: bytes) -> None:
            add_stream.append((stream, early))
            near.close()

    relays.expected["s"] = ("ticket", Relay())
    caller, near = socket.socketpair()
    with caller:
        Arrival(relays, near)
        head = [
            f"GET {PATH}s HTTP/1.1",
            "Authorization: Bearer ticket",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ]
        caller.sendall("\r\n".join((*head, "", "one\r\n\r\ntwo")).encode())
        relays.loop.turn(0)
        assert add_stream == [("s", b"one\r\n\r\ntwo")] and caller.recv(100).startswith(b"HTTP/1.1 101 ")
    relays.loop.close()


def test_each_replica_there_is_has_a_place_and_its_agent_is_asked_for_streams(tmp_path: Path) -> None:
    orders = list[GatewayStream]()
    relays = GatewayRelays(str(tmp_path), orders.extend)

    def placed_and_dialled(*replicas: ReplicaAddress) -> tuple[list[str], set[tuple[object, ...]]]:
        """Which have a place, and whom was asked to dial where."""
        orders.clear()
        relays.set_replicas({each.job: each for each in replicas})
        done = threading.Event()
        relays.loop.call(done.set)
        assert done.wait(120)
        there = [job for job in ("a", "b") if Path(place(str(tmp_path), job)).exists()]
        return there, {(order["task"], order["instance"], order["target"]) for order in orders}

    one, two = ReplicaAddress("a", "i-1", 80, "r"), ReplicaAddress("b", "i-1", 81, "r")
    assert placed_and_dialled(one, two) == (["a", "b"], {("a", "i-1", "port:80"), ("b", "i-1", "port:81")})
    assert placed_and_dialled(one, two) == (["a", "b"], set())
    assert placed_and_dialled(one._replace(instance="i-2"), two) == (["a", "b"], {("a", "i-2", "port:80")}), (
        "it has moved"
    )
    assert placed_and_dialled(two) == (["b"], set())
    assert placed_and_dialled() == ([], set()) and relays.expected == {}, "no ticket is good any more"
    relays.close()


def test_a_request_that_finds_no_stream_is_turned_away_in_time(tmp_path: Path) -> None:
    relays = GatewayRelays(str(tmp_path), lambda orders: None)
    relays.loop = StreamLoop(lambda: NOW)
    relay = GatewayRelay(relays, ReplicaAddress("a", "i", 80, "r"))
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(place(str(tmp_path), "a"))
        relays.loop.turn(0)
        caller.setblocking(False)
        relay.check(NOW + PATIENCE - 0.1)
        with pytest.raises(BlockingIOError):
            caller.recv(1)
        relay.check(NOW + PATIENCE)
        assert caller.recv(1) == b""
    relay.close()
    relays.loop.close()


class Site:
    """A service of replicas behind streams, on a loop that the test turns and a clock that it sets."""

    def __init__(self, folder: Path, *jobs: str, direct: bool = False) -> None:
        self.now, self._folder = NOW, folder
        self.relays = GatewayRelays(str(folder), lambda orders: None)
        self.relays.loop = StreamLoop(lambda: self.now)
        replicas = {job: ReplicaAddress(job, f"host of {job}", 80, "run") for job in jobs}
        self.relays._set_replicas(replicas, {"run"} if direct else set())

    def agent(self, job: str) -> Agent:
        """One stream more of this replica's agent."""
        own, near = socket.socketpair()
        own.setblocking(False)
        self.relays._relays[job].add_stream(job, near, b"")
        return Agent(self, own)

    def call(self, job: str, request: bytes = b"GET / HTTP/1.1\r\n\r\n") -> socket.socket:
        """nginx's connection, with a request on it."""
        caller = socket.socket(socket.AF_UNIX)
        caller.connect(place(str(self._folder), job))
        caller.setblocking(False)
        caller.send(request)
        self.turn()
        return caller

    def refuses(self, job: str) -> bool:
        try:
            self.call(job).close()
        except ConnectionRefusedError:
            return True
        return False

    def turn(self, seconds: float = 0.0) -> None:
        self.now += seconds
        while self.relays.loop.turn(0):
            pass

    def close(self) -> None:
        self.relays._set_replicas({}, set())
        self.relays.loop.close()


class Agent:
    def __init__(self, site: Site, near: socket.socket) -> None:
        self._site, self._near, self._peer = site, near, Peer(client=True)

    def got(self, *, answers: bool = True) -> bytes:
        """The bytes for the application. `answers`: pings, too."""
        try:
            parts, back = self._peer.receive(self._near.recv(65536))
        except BlockingIOError:
            return b""
        if answers:
            self._near.send(back)
            self._site.turn()
        return b"".join(parts)

    def say(self, data: bytes) -> None:
        self._near.send(self._peer.message(data))
        self._site.turn()

    def die(self) -> None:
        self._near.close()
        self._site.turn()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, "a", "b")
    yield made
    made.close()


def over(caller: socket.socket) -> bool:
    """Has it been closed?"""
    try:
        return caller.recv(1) == b""
    except ConnectionResetError:
        return True
    except BlockingIOError:
        return False


def test_a_replica_whose_host_died_refuses_at_once_while_another_is_connected(two: Site) -> None:
    dead, _ = two.agent("a"), two.agent("b")
    assert not two.refuses("a")
    waiting = [two.agent("a"), two.agent("a")]
    dead.die()
    assert not two.refuses("a"), "it has other streams"
    for each in waiting:
        each.die()
    assert two.refuses("a") and not two.refuses("b")
    two.agent("a")
    assert not two.refuses("a"), "it is back"


def test_whoever_waits_is_turned_away_once_another_replica_is_connected(two: Site) -> None:
    waits = two.call("a")
    assert not over(waits), "no replica is connected, so that one's agent may be the first"
    two.agent("b")
    assert over(waits)


def test_the_only_replica_lets_requests_wait(tmp_path: Path) -> None:
    site = Site(tmp_path, "a")
    site.agent("a").die()
    assert not over(site.call("a"))
    site.close()


def test_a_replica_that_is_reached_by_itself_stands_by_as_well(tmp_path: Path) -> None:
    site = Site(tmp_path, "a", direct=True)
    agent = site.agent("a")
    assert not site.refuses("a")
    agent.die()
    assert site.refuses("a")
    site.close()


def test_a_silent_agent_gets_no_request_that_another_can_have(two: Site) -> None:
    silent, spare, _ = two.agent("a"), two.agent("a"), two.agent("b")
    two.turn(FRESH)
    caller = two.call("a")
    two.turn(PROOF - 0.1)
    assert not over(caller)
    two.turn(0.1)
    assert over(caller) and two.refuses("a")
    assert silent.got(answers=False) == spare.got(answers=False) == b""


def test_an_agent_that_proves_to_be_there_gets_it(two: Site) -> None:
    agent, _ = two.agent("a"), two.agent("b")
    two.turn(FRESH)
    caller = two.call("a", b"GET /1 HTTP/1.1\r\n\r\n")
    assert agent.got() == b"" and agent.got() == b"GET /1 HTTP/1.1\r\n\r\n"
    agent.say(b"HTTP/1.1 200 OK\r\n\r\n")
    two.turn(FRESH)
    caller.send(b"GET /2 HTTP/1.1\r\n\r\n")  # on the same connection
    two.turn()
    assert agent.got(answers=False) == b"", "it is to prove that once more"
    two.turn(PROOF)
    assert over_after(caller, b"HTTP/1.1 200 OK\r\n\r\n") and two.refuses("a")


def over_after(caller: socket.socket, data: bytes) -> bool:
    return caller.recv(len(data)) == data and over(caller)


def test_a_websocket_proves_nothing(two: Site) -> None:
    agent, _ = two.agent("a"), two.agent("b")
    caller = two.call("a", b"GET /ws HTTP/1.1\r\n\r\n")
    assert agent.got().startswith(b"GET /ws")
    two.turn(FRESH)
    caller.send(frame := Peer(client=True).message(b"A"))
    two.turn()
    assert agent.got(answers=False) == frame, "a stall mustn't end it"


def test_without_another_replica_a_request_goes_to_a_silent_agent(tmp_path: Path) -> None:
    site = Site(tmp_path, "a")
    agent = site.agent("a")
    site.turn(FRESH)
    site.call("a", b"GET / HTTP/1.1\r\n\r\n")
    assert agent.got(answers=False) == b"GET / HTTP/1.1\r\n\r\n"
    site.close()


def test_replicas_without_any_stream_are_counted_as_long_as_no_host_reaches_the_gateway(two: Site) -> None:
    def unreached(after: float) -> int:
        two.now += after
        two.relays.check(two.now)
        return two.relays.unreached

    assert unreached(DIALLED - 0.1) == 0, "they are being dialled"
    assert unreached(0.1) == 2
    agent = two.agent("a")
    assert unreached(DIALLED) == 0, "the host of one may be down"
    agent.die()
    assert unreached(DIALLED - 0.1) == 0
    assert unreached(0.1) == 2
    two.relays._set_replicas({}, set())
    assert unreached(DIALLED) == 0
