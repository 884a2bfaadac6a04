"""What only a gateway does: its memory, its certificates, and the limits of what it holds."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.gateway.control import ControlError
from chalicelib.domain.serving import ServedReplica
from chalicelib.domain.specs.services import RateLimit
from tests.harness.server import until
from tests.serving.caller import Caller
from tests.serving.door import TOKEN, Replica, Visitor, bearer, service
from tests.serving.nginx_door import DOMAIN, NginxDoor, installed


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NginxDoor]:
    installed()
    door = NginxDoor(tmp_path_factory.mktemp("gateway"), workers="2", tls=True)
    try:
        yield door
    finally:
        door.stop()


@pytest.fixture
def door(gateway: NginxDoor) -> NginxDoor:
    gateway.empty()
    return gateway


@pytest.fixture(scope="module")
def replica() -> Iterator[Replica]:
    made = Replica()
    yield made
    made.stop()


def certificate(folder: Path, host: str) -> dict[str, str]:
    key, made = folder / f"{host}.key", folder / f"{host}.crt"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}", "-keyout", str(key), "-out", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    return {"certificate": made.read_text(), "key": key.read_text()}


def shown(door: NginxDoor, host: str, trusted: str) -> dict[str, Any]:
    """The certificate that a client sees who trusts this one alone."""
    with Caller(door.secure) as caller:
        context = ssl.create_default_context(cadata=trusted)
        with context.wrap_socket(caller.socket, server_hostname=host) as secured:
            return dict(secured.getpeercert() or {})


def test_certificates_are_shown_as_they_are_told(door: NginxDoor, replica: Replica, tmp_path: Path) -> None:
    served, pairs = service((replica,)), [certificate(tmp_path, f"app.{DOMAIN}") for _ in range(2)]
    for pair in pairs:  # the second takes the first one's place
        door.serve(served, certificates={f"app.{DOMAIN}": pair})
        assert shown(door, f"app.{DOMAIN}", pair["certificate"])
    with pytest.raises(ssl.SSLError):
        shown(door, f"app.{DOMAIN}", pairs[0]["certificate"])
    with pytest.raises(ssl.SSLError):
        shown(door, f"other.{DOMAIN}", pairs[1]["certificate"])


def test_a_service_with_tls_sends_others_there(door: NginxDoor, replica: Replica) -> None:
    served = service((replica,), https=True)
    door.serve(served)
    answer = Visitor(door, served).ask("/echo?x=1", "POST", body=b"hello")
    assert (answer.status, answer.header("location")) == (308, f"https://app.{DOMAIN}/echo?x=1")


def test_a_port_for_tls_that_is_not_the_usual_one_is_named(door: NginxDoor, replica: Replica) -> None:
    served = service((replica,))
    entry = {**served.model_dump(mode="json"), "hosts": [f"app.{DOMAIN}"], "https": 8443}
    door.configure({"services": [entry]})
    assert Visitor(door, served).ask("/echo").header("location") == f"https://app.{DOMAIN}:8443/echo"


def test_a_challenge_is_answered_whatever_host_it_is_for(door: NginxDoor, replica: Replica) -> None:
    served = service((replica,), https=True, auth=True)
    door.serve(served, challenges={"tok-1": "tok-1.thumbprint"})
    answer = Visitor(door, served).ask("/.well-known/acme-challenge/tok-1")
    assert (answer.status, answer.body) == (200, b"tok-1.thumbprint")
    assert Visitor(door, served).ask("/.well-known/acme-challenge/tok-2").status == 308


def test_replicas_behind_unix_sockets(door: NginxDoor, tmp_path: Path) -> None:
    replica = Replica(unix=str(tmp_path / "replica.sock"))
    try:
        address = f"unix:{tmp_path}/replica.sock"
        served = service((ServedReplica(job_id="j", instance_id="i", port=0, address=address, ready=True),))
        door.serve(served)
        assert [Visitor(door, served).ask("/echo").status for _ in range(3)] == [200] * 3
    finally:
        replica.stop()


def test_what_is_refused_doesnt_disturb_what_comes_behind_it(door: NginxDoor, replica: Replica) -> None:
    """A body that nobody read must not be taken for the next request."""
    served = service((replica,), auth=True)
    door.serve(served)
    door.allow(TOKEN, "main")
    with Caller(door.address) as caller:
        for _ in range(3):
            caller.head("POST", "/echo", f"app.{DOMAIN}", [("Content-Length", "32")])
            caller.send(b"GET /sneaked HTTP/1.1\r\nHost: x\r\n")
            assert caller.answer().status == 403
            caller.head("GET", "/echo?honest", f"app.{DOMAIN}", [bearer(TOKEN)])
            assert caller.answer().json()["target"] == "/echo?honest"


def test_a_thousand_may_wait_and_no_more(door: NginxDoor) -> None:
    served, door.hold = service(()), 2.0
    door.serve(served)
    callers = [Caller(door.address) for _ in range(1010)]
    try:
        for caller in callers:
            caller.head("GET", "/echo", f"app.{DOMAIN}")
        statuses = [caller.answer().status for caller in callers]
    finally:
        for caller in callers:
            caller.close()
    assert statuses == [503] * 1010
    until("all to be over", lambda: (found := door.traffic(served)) and found.held == 0 and found.quiet)
    assert len(door.woken) < 100  # asked once in two seconds, not a thousand times


def test_memory_that_is_full_changes_nothing(door: NginxDoor, replica: Replica) -> None:
    served = service((replica,))
    door.serve(served)
    large = {f"challenge|{number}": "x" * 1_000_000 for number in range(20)}
    with pytest.raises(ControlError, match="no memory"):
        door.control.set(large)
    assert Visitor(door, served).ask("/echo").status == 200
    assert not [key for key in list(door.control.keys()) if key.startswith("challenge")]


def test_workers_that_are_killed_leave_nothing_under_way(door: NginxDoor, replica: Replica) -> None:
    served = service((replica,))
    door.serve(served)
    visitor = Visitor(door, served)
    callers = [visitor.connect() for _ in range(12)]
    for caller in callers:
        caller.head("GET", "/stream?n=1000000&gap=0.1", visitor.host)
        caller.begin().read1(10)

    def under_way() -> tuple[int, int]:
        """For its run, and for its replica."""
        counts = door.control.counts([served.run_id], [replica.id])
        return int(counts["runs"][served.run_id]["busy"]), int(counts["jobs"][replica.id])

    assert under_way() == (12, 12)
    victims = door.nginx.pids()[1:]
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    until("others", lambda: len(door.nginx.pids()) == 3 and not set(victims) & set(door.nginx.pids()))
    door.control.close()  # its connection was with one that was killed
    until("nothing to be under way", lambda: under_way() == (0, 0))
    assert visitor.ask("/echo").status == 200
    for caller in callers:
        caller.close()


def test_workers_share_limits_and_counts(door: NginxDoor, replica: Replica) -> None:
    served = service((replica,), rate_limits=(RateLimit(rps=1 / 30, burst=9),))
    door.serve(served)
    callers = [Caller(door.address) for _ in range(40)]
    for caller in callers:
        caller.head("GET", "/echo", f"app.{DOMAIN}")
    statuses = [caller.answer().status for caller in callers]
    for caller in callers:
        caller.close()
    assert sorted(statuses)[:10] == [200] * 10 and statuses.count(429) >= 28  # two at one instant may be one too many
    found = door.traffic(served)
    assert found is not None and sum(bucket.requests for bucket in found.buckets) == statuses.count(200)


def test_a_hundred_services_take_little_memory(replica: Replica, tmp_path: Path) -> None:
    door = NginxDoor(tmp_path, workers="2")
    try:
        services = [service((replica, replica, replica), name=f"app-{number}", auth=True) for number in range(100)]
        door.serve(*services)
        door.allow(TOKEN, "main")
        for served in services:
            assert Visitor(door, served).ask("/echo", headers=[bearer(TOKEN)]).status == 200
        assert door.memory() < 80 * 2**20
        print(f"{door.memory() / 2**20:.0f} MB in {len(door.nginx.pids())} processes")
    finally:
        door.stop()


class Deliberate(dict[str, tuple[str, ...]]):
    """Tokens that take a while to be judged."""

    def __init__(self) -> None:
        super().__init__()
        self.lock, self.judging, self.most, self.judged = threading.Lock(), 0, 0, 0

    def get(self, key: str, default: Any = None) -> Any:
        with self.lock:
            self.judging += 1
            self.judged += 1
            self.most = max(self.most, self.judging)
        time.sleep(0.02)
        with self.lock:
            self.judging -= 1
        return super().get(key, default)


def test_a_crowd_of_unknown_callers_takes_few_threads_and_all_are_answered(door: NginxDoor, replica: Replica) -> None:
    served = service((replica,), auth=True)
    door.serve(served)
    visitor = Visitor(door, served)
    door.tokens = tokens = Deliberate()
    callers = [visitor.connect() for _ in range(300)]
    for number, caller in enumerate(callers):
        caller.head("GET", "/echo", visitor.host, [bearer(f"nobody-{number}")])
    statuses = {caller.answer().status for caller in callers}
    door.tokens = {}
    for caller in callers:
        caller.close()
    assert statuses == {403} and tokens.judged == 300
    assert tokens.most <= 64, "32 of each of two workers"
