"""Whoever comes to a gateway as an agent. Streams as such are in `tests/serving/test_gateway_streams_real.py`."""

from __future__ import annotations

import socket
from pathlib import Path

from chalicelib.agent.gateway.relays import PATIENCE, Arrival, GatewayRelays
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
