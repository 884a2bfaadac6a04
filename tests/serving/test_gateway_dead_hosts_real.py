"""Replicas that a gateway's nginx reaches by itself, on hosts that lose their power: nothing comes from them any more,
not even the end of a connection. Hosts are network namespaces, and power is a wire that is unplugged."""

from __future__ import annotations

import http.client
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from chalicelib.domain.serving import ServedReplica
from tests.e2e.hosts.claim import claimed
from tests.e2e.hosts.network import Network
from tests.harness.debian import install
from tests.harness.server import until
from tests.serving.caller import Caller
from tests.serving.door import Replica, service
from tests.serving.gateway_plane import FakePlane, Program
from tests.serving.nginx_door import DOMAIN, installed

LONG = 60.0  # seconds: far less than nginx waits for a replica that says nothing


class Site:
    """A gateway on a host of its own, and a replica on each of two others."""

    def __init__(self, network: Network, folder: Path, made: ExitStack) -> None:
        self._network, self._at = network, network.workers["gateway"]
        self._questions = Counter[str]()
        self.replicas = {name: self._replica(name, made) for name in ("dead", "good")}
        plane = self._at.within(FakePlane)
        made.callback(plane.close)
        self._program = self._at.within(lambda: Program(folder, f"http://127.0.0.1:{plane.port}"))
        made.callback(self._program.stop)
        plane.say(service([self._served(each) for each in self.replicas.values()]))
        until("nginx to have both replicas", lambda: len(self._answering()) == 2, every=0.2)

    def _replica(self, name: str, made: ExitStack) -> Replica:
        replica = self._network.workers[name].within(lambda: Replica(name, host="0.0.0.0"))
        made.callback(replica.stop)
        return replica

    def _served(self, replica: Replica) -> ServedReplica:
        """Nobody opens streams to it, so what it answers came without."""
        (address,) = self._network.addresses(replica.name)
        return replica.served(address="", nearby=address, instance_id=replica.name)

    def _answering(self) -> set[bytes]:
        if not (self._program.folder / "word.json").exists():
            return set()
        callers = [self.call("GET", "/delay?s=0.1") for _ in range(10)]  # so that each replica has some
        answers = [caller.answer() for caller in callers]
        return {each.body for each in answers if each.status == 200}

    def call(self, method: str, target: str, body: bytes = b"") -> Caller:
        caller = self._at.within(lambda: Caller(("127.0.0.1", self._program.port), LONG))
        headers = [("Content-Length", str(len(body))), ("Connection", "close")]
        caller.head(method, target, f"app.{DOMAIN}", headers)
        caller.send(body)
        return caller

    def seen(self, name: str) -> int:
        """How many requests the replica has got, without these questions."""
        found = self._network.workers[name].within(self.replicas[name].seen)
        self._questions[name] += 1
        return int(found["requests"]) - self._questions[name]

    def lose_power(self) -> None:
        self._network.plug("dead", "down")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    if os.geteuid() != 0:
        pytest.skip("hosts need root")
    installed()
    if not shutil.which("ip"):
        install("iproute2", "procps")
    with claimed() as place, ExitStack() as made:
        hosts = dict.fromkeys(("gateway", "dead", "good"), ("lan",))
        network = Network(place.name, hosts, workers_reach_plane=False)
        network.up()
        yield Site(network, tmp_path, made)


@pytest.mark.parametrize("size", [0, 1000])
def test_what_is_sent_to_a_host_without_power_goes_to_another(site: Site, size: int) -> None:
    """Over connections that were kept from the time when it was there."""
    site.lose_power()
    for _ in range(20):
        began = time.monotonic()
        with site.call("POST", "/echo", bytes(size)) as caller:
            answer = caller.answer("POST")
        assert (answer.status, answer.json()["replica"]) == (200, "good")
        print(f"{time.monotonic() - began:.2f} s")


def test_what_a_host_without_power_had_got_ends_and_goes_nowhere_else(site: Site) -> None:
    """What another works on for longer than a dead host is waited for isn't touched."""
    before = site.seen("dead") + site.seen("good")
    waiting = [site.call("POST", "/delay?s=20") for _ in range(2)]
    streams = [site.call("GET", "/stream?n=200&gap=0.1") for _ in range(2)]
    begun = [caller.begin() for caller in streams]
    until("all of them to be under way", lambda: site.seen("dead") + site.seen("good") >= before + 4)
    good = site.seen("good")
    site.lose_power()
    began = time.monotonic()
    assert sorted(_outcome(each) for each in begun) == ["it breaks off", "whole"]
    answers = {caller.answer("POST").status: caller for caller in waiting}
    print(f"{time.monotonic() - began:.2f} s")
    assert sorted(answers) == [200, 502]
    assert site.seen("good") == good


def _outcome(stream: http.client.HTTPResponse) -> str:
    try:
        data = stream.read()
    except http.client.IncompleteRead:
        return "it breaks off"
    assert data.endswith(b"[DONE]\n\n")
    return "whole"
