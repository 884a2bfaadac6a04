from __future__ import annotations

import socket

from tests.harness import ports


def test_none_is_given_twice_and_all_are_below_those_of_the_system() -> None:
    given = ports.free_ports(100)
    assert len(set(given)) == 100
    assert min(given) >= ports.FIRST and max(given) < ports.FIRST + ports.COUNT <= 20_000, "agents have the next"
    assert not any(map(ports._claimed, given))


def test_one_that_somebody_has_is_given_to_nobody() -> None:
    port = ports.free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert not ports._unused(port)
    assert ports._unused(port)
