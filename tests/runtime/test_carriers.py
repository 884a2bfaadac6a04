"""Which carrier containers get: made once a release, outside of purchases, and an older one rather than none."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable

import pytest

from chalicelib.carrier.packages import release
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.errors import DstackError, Refused, Throttled
from chalicelib.runtime.carriers import CarrierMaker
from chalicelib.usecases.agents import carriers
from tests.world.ports import Blobs
from tests.world.time import NOW


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Server:
    """A maker whose thread runs when a test says so."""

    def __init__(self) -> None:
        self.blobs, self.at = Blobs(), NOW
        self.made: list[str] = []
        self.problem: Exception | None = None
        self.threads: list[Callable[[], None]] = []
        self.maker = CarrierMaker(self.blobs, self, self._make, self.threads.append)

    def now(self) -> int:
        return self.at

    def _make(self, architecture: str) -> bytes:
        self.made.append(architecture)
        if self.problem is not None:
            raise self.problem
        return architecture.encode()

    def run(self) -> None:
        self.threads.pop()()


@pytest.fixture
def server() -> Server:
    return Server()


def test_purchases_wait_for_the_first_which_one_thread_makes(server: Server) -> None:
    for architecture in ("x86", "arm", "x86"):
        with pytest.raises(Throttled, match="is being made"):
            server.maker.digest(architecture)
    assert server.made == [] and len(server.threads) == 1, "nothing is made within a purchase"
    server.run()
    assert [server.maker.digest(each) for each in ("x86", "arm")] == [sha256(b"x86"), sha256(b"arm")]
    assert server.made == ["x86", "arm"] and server.threads == []


def test_a_new_release_makes_another_and_nobody_waits_for_it(server: Server) -> None:
    carriers.publish(server.blobs, "x86", "earlier", b"old")
    assert server.maker.digest("x86") == sha256(b"old")
    server.run()
    assert server.maker.digest("x86") == sha256(b"x86")
    assert carriers.newest(server.blobs, "x86") == (release(), sha256(b"x86"))


@pytest.mark.parametrize(
    "problem",
    [Refused("The package libc6 can't be fetched.", hint="Let this machine reach it."), OSError("no lzma here")],
)
def test_where_none_can_be_made_containers_are_bought_without(
    server: Server, problem: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    server.problem = problem
    with pytest.raises(Throttled):
        server.maker.digest("x86")
    with caplog.at_level(logging.WARNING):
        server.run()
    assert "whose image has no Python won't start" in caplog.text
    assert (str(problem) if isinstance(problem, DstackError) else "OSError: no lzma here") in caplog.text
    assert server.maker.digest("x86") == "" and server.threads == [], "a failure is remembered"
    server.at += 11 * MINUTE
    assert server.maker.digest("x86") == "" and len(server.threads) == 1, "it is tried again, and nobody waits"
    server.problem = None
    server.run()
    assert server.maker.digest("x86") == sha256(b"x86")


def test_an_older_one_is_better_than_none(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    carriers.publish(server.blobs, "x86", "earlier", b"old")
    server.problem = Refused("The package libc6 can't be fetched.")
    server.maker.digest("x86")
    with caplog.at_level(logging.WARNING):
        server.run()
    assert "get an older carrier" in caplog.text and server.maker.digest("x86") == sha256(b"old")


def test_a_network_that_drops_everything_delays_purchases_for_minutes_only(server: Server) -> None:
    with pytest.raises(Throttled):
        server.maker.digest("x86")
    server.at += 3 * MINUTE - SECOND
    with pytest.raises(Throttled):
        server.maker.digest("x86")
    server.at += SECOND
    assert server.maker.digest("x86") == "" and len(server.threads) == 1
