"""Which replicas on other hosts a gateway reaches by itself: loopback addresses stand for the hosts."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from chalicelib.agent.gateway import direct, entries
from chalicelib.agent.gateway.direct import RECHECK_REACHABLE, RECHECK_UNREACHABLE, DirectRoutes
from chalicelib.agent.gateway.relays import place
from chalicelib.domain.serving import Served, ServedReplica

OTHER_ADDRESS = "127.0.0.2"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def there() -> Iterator[socket.socket]:
    """A replica on another host."""
    with listens(OTHER_ADDRESS) as sock:
        yield sock


def listens(address: str, port: int = 0, backlog: int = 16) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((address, port))
    made.listen(backlog)
    return made


def gateway_configuration(port: int, job: str = "j", **fields: Any) -> dict[str, Any]:
    replica = ServedReplica(
        job_id=job, instance_id="i", port=port, **{"nearby": OTHER_ADDRESS, "ready": True, **fields}
    )
    made = Served(run_id="r", run_name="app", project_id="p", project_name="main", port=80, replicas=(replica,))
    return {"version": "1", "services": [{**made.model_dump(mode="json"), "hosts": ["app.example.test"]}]}


def address(of: DirectRoutes, configuration: dict[str, Any]) -> str:
    found: str = of.with_addresses(configuration)["services"][0]["replicas"][0]["address"]
    return found


def port_of(sock: socket.socket) -> int:
    port: int = sock.getsockname()[1]
    return port


def test_what_is_reached_gets_its_address_and_keeps_its_streams(clock: Clock, there: socket.socket) -> None:
    configuration, tried = gateway_configuration(port_of(there)), DirectRoutes(clock)
    assert address(tried, configuration) == ""
    assert tried.refresh(configuration) and address(tried, configuration) == OTHER_ADDRESS
    assert not tried.refresh(configuration), "nothing has changed"
    assert list(entries.relayed(configuration)) == ["j"]
    assert (
        place("/relays", "j")
        not in entries.entries(tried.with_addresses(configuration), "/relays")["host|app.example.test"]
    )


def test_one_that_listens_on_its_own_loopback_only_is_reached_over_streams(clock: Clock) -> None:
    with listens("127.0.0.1") as sock:
        configuration, tried = gateway_configuration(port_of(sock)), DirectRoutes(clock)
        assert not tried.refresh(configuration) and address(tried, configuration) == ""


def test_it_falls_back_and_comes_again(clock: Clock, there: socket.socket) -> None:
    configuration, tried = gateway_configuration(port_of(there)), DirectRoutes(clock)
    assert tried.refresh(configuration)
    there.close()
    assert not tried.refresh(configuration), "it isn't time yet"
    clock.now += RECHECK_REACHABLE
    assert tried.refresh(configuration) and address(tried, configuration) == ""
    with listens(OTHER_ADDRESS, configuration["services"][0]["replicas"][0]["port"]):
        clock.now += RECHECK_REACHABLE
        assert not tried.refresh(configuration), "what failed is tried more seldom"
        clock.now += RECHECK_UNREACHABLE - RECHECK_REACHABLE
        assert tried.refresh(configuration) and address(tried, configuration) == OTHER_ADDRESS


def test_another_job_at_the_same_place_is_tried_anew(clock: Clock, there: socket.socket) -> None:
    port, tried = port_of(there), DirectRoutes(clock)
    assert tried.refresh(gateway_configuration(port))
    assert address(tried, gateway_configuration(port, "another")) == ""
    there.close()
    assert (
        tried.refresh(gateway_configuration(port, "another"))
        and address(tried, gateway_configuration(port, "another")) == ""
    )


def test_a_job_whose_place_has_changed_isnt_sought_at_the_old_one(clock: Clock, there: socket.socket) -> None:
    tried = DirectRoutes(clock)
    assert tried.refresh(gateway_configuration(port_of(there)))
    assert address(tried, gateway_configuration(port_of(there), nearby="127.0.0.3")) == ""
    assert address(tried, gateway_configuration(1)) == ""


@pytest.mark.parametrize("fields", [{"ready": False}, {"draining": True}, {"nearby": ""}, {"address": "127.0.0.1"}])
def test_what_gets_no_requests_or_has_an_address_isnt_tried(
    clock: Clock, there: socket.socket, fields: dict[str, Any]
) -> None:
    configuration, tried = gateway_configuration(port_of(there), **fields), DirectRoutes(clock)
    there.settimeout(0)
    assert not tried.refresh(configuration) and address(tried, configuration) == fields.get("address", "")
    with pytest.raises(BlockingIOError):
        there.accept()


def test_one_behind_a_firewall_costs_no_more_than_the_try(there: socket.socket) -> None:
    """A full queue answers as a firewall that drops packets does: not at all."""
    with listens("127.0.0.3", backlog=0) as full:
        waiting = []
        for _ in range(4):
            made = socket.socket()
            made.setblocking(False)
            made.connect_ex(full.getsockname())
            waiting.append(made)
        both = {full.getsockname(), there.getsockname()}
        assert direct.reachable_of(both, patience=0.5) == {there.getsockname()}
        for made in waiting:
            made.close()


def test_nonsense_is_reached_nowhere() -> None:
    assert direct.reachable_of({("fe80::1::2", 80)}) == set()
