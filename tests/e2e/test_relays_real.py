"""Replicas that are reached over their agents' streams alone: a real server, a machine of the simulated cloud with its
own agent, and clients of the replica's socket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.harness.relays import Tunnel, answers, back_after_a_cut, burst, one_by_one, rate, served
from tests.harness.server import Server, until

Far = tuple[Server, str, int]


@pytest.fixture(scope="module")
def far() -> Iterator[Far]:
    with served() as there:
        yield there


def test_requests_come_through_one_after_the_other_and_at_once(far: Far) -> None:
    _, path, _ = far
    assert len(asyncio.run(one_by_one(path, 200))) == 200
    assert asyncio.run(rate(path, 32, 1.0)) > 0


def test_a_hundred_new_connections_at_once_lose_none(far: Far) -> None:
    _, path, _ = far
    for _ in range(2):
        answered, _ = asyncio.run(burst(path, 100))
        assert answered == 100


def test_a_cut_tunnel_is_back_and_whoever_asks_meanwhile_is_answered(far: Far) -> None:
    _, path, _ = far

    async def story() -> None:
        async with Tunnel(far[0]) as tunnel:
            for _ in range(3):
                await back_after_a_cut(tunnel, path)

    asyncio.run(story())


def test_the_socket_goes_with_its_replica(far: Far) -> None:
    server, _, _ = far
    server.cli("stop", "far", "-y")
    until("the door to be closed", lambda: not answers(server, "far"))
