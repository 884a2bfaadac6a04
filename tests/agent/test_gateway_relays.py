"""Whoever comes to a gateway as an agent. Streams as such are in `tests/serving/test_gateway_streams_real.py`."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from chalicelib.agent.gateway.relays import (
    PATH,
    PATIENCE,
    Arrival,
    GatewayRelay,
    GatewayRelays,
    Order,
    ReplicaAddress,
    place,
)
from chalicelib.agent.stream_loop import StreamLoop

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
    relays, came = GatewayRelays(str(tmp_path), lambda orders: None), list[tuple[str, bytes]]()
    relays.loop = StreamLoop(lambda: NOW)

    class Relay(GatewayRelay):
        def __init__(self) -> None:
            """Of no service."""

        def came(self, stream: str, near: socket.socket, early: bytes) -> None:
            came.append((stream, early))
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
        assert came == [("s", b"one\r\n\r\ntwo")] and caller.recv(100).startswith(b"HTTP/1.1 101 ")
    relays.loop.close()


def test_each_replica_there_is_has_a_place_and_its_agent_is_asked_for_streams(tmp_path: Path) -> None:
    asked = list[Order]()
    relays = GatewayRelays(str(tmp_path), asked.extend)

    def kept(*replicas: ReplicaAddress) -> tuple[list[str], set[tuple[object, ...]]]:
        """Which have a place, and whom was asked to dial where."""
        asked.clear()
        relays.keep({each.job: each for each in replicas})
        done = threading.Event()
        relays.loop.call(done.set)
        assert done.wait(20)
        there = [job for job in ("a", "b") if Path(place(str(tmp_path), job)).exists()]
        return there, {(order["task"], order["instance"], order["target"]) for order in asked}

    one, two = ReplicaAddress("a", "i-1", 80), ReplicaAddress("b", "i-1", 81)
    assert kept(one, two) == (["a", "b"], {("a", "i-1", "port:80"), ("b", "i-1", "port:81")})
    assert kept(one, two) == (["a", "b"], set())
    assert kept(one._replace(instance="i-2"), two) == (["a", "b"], {("a", "i-2", "port:80")}), "it has moved"
    assert kept(two) == (["b"], set())
    assert kept() == ([], set()) and relays.expected == {}, "no ticket is good any more"
    relays.close()


def test_a_request_that_finds_no_stream_is_turned_away_in_time(tmp_path: Path) -> None:
    relays = GatewayRelays(str(tmp_path), lambda orders: None)
    relays.loop = StreamLoop(lambda: NOW)
    relay = GatewayRelay(relays, ReplicaAddress("a", "i", 80))
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
