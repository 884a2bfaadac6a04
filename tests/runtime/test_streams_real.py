"""Streams through a real server and a real agent, to a job that listens on a port."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from chalicelib.agent.streams.websocket import Closed
from tests.bench.measure import submit, task, wait_local_host
from tests.harness.ports import free_ports
from tests.harness.server import Server, until
from tests.harness.streams import Refused, Stream
from tests.runtime.live import agent_pid, run_of

# An echo; one that sends without end and reads nothing; one that closes once it was sent something.
PORTS = """
import socket, sys, threading
def echo(call):
    while data := call.recv(65536):
        call.sendall(data)
def flood(call):
    while True:
        call.sendall(bytes(65536))
def once(call):
    said = call.recv(100)
    call.sendall(b"you said " + said)
    print("served", said.decode(), flush=True)
def guarded(serve, call):
    try:
        serve(call)
    except OSError:
        pass
    call.close()
def listen(serve, port):
    server = socket.create_server(("127.0.0.1", port), backlog=256)
    while True:
        threading.Thread(target=guarded, args=(serve, server.accept()[0]), daemon=True).start()
for serve, port in zip((echo, flood, once), sys.argv[1:]):
    threading.Thread(target=listen, args=(serve, int(port))).start()
print("up", flush=True)
"""


@dataclass
class Site:
    server: Server
    echo: str
    flood: str
    once: str
    nobody: str

    def stream(self, target: str, token: str = "") -> Stream:
        return Stream(self.server.url, token or self.server.token, "ports", target)

    def pids(self) -> tuple[int, int]:
        assert self.server.process is not None
        return self.server.process.pid, agent_pid(self.server)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("streams")
    server = Server(home, env={"DSTACK_AGENT_RUNTIME": "process"})
    try:
        server.start()
        wait_local_host(server)
        ports = free_ports(4)
        program = base64.b64encode(PORTS.encode()).decode()
        listening = " ".join(map(str, ports[:3]))
        submit(
            server, task("ports", f"exec python3 -c 'import base64; exec(base64.b64decode(\"{program}\"))' {listening}")
        )
        until("the job to run", lambda: run_of(server, "ports")["status"] == "running")
        made = Site(server, *(f"port:{port}" for port in ports))
        until("the job to listen", lambda: answers(made))
        yield made
    finally:
        server.close()


def answers(site: Site) -> bool:
    with site.stream(site.once) as stream:
        stream.send(b"x")
        return stream.rest() == b"you said x"


def is_socket(descriptor: Path) -> bool:
    try:
        return str(descriptor.readlink()).startswith("socket:")
    except FileNotFoundError:  # closed meanwhile
        return False


def settled(site: Site, streams: Callable[[], None]) -> None:
    """After these, server and agent have no more sockets than before."""

    def held() -> list[int]:
        return [sum(is_socket(each) for each in Path(f"/proc/{pid}/fd").iterdir()) for pid in site.pids()]

    before = held()
    streams()
    until("all sockets to be closed", lambda: all(now <= then for now, then in zip(held(), before, strict=True)))


def test_bytes_go_both_ways_unchanged(site: Site) -> None:
    data = os.urandom(3_000_000)
    with site.stream(site.echo) as stream, ThreadPoolExecutor(1) as thread:
        sending = thread.submit(lambda: [stream.send(data[at : at + 100_001]) for at in range(0, len(data), 100_001)])
        assert stream.exactly(len(data)) == data
        sending.result()


def test_the_jobs_end_is_the_clients(site: Site) -> None:
    with site.stream(site.once) as stream:
        stream.send(b"hi")
        assert stream.rest() == b"you said hi" and stream.closed == Closed(1000)


def test_a_port_where_nobody_listens_is_named(site: Site) -> None:
    with site.stream(site.nobody) as stream:
        assert stream.rest() == b""
        assert stream.closed == Closed(1011, f"nothing listens on port {site.nobody[5:]} of the job")


def test_the_log_comes_from_its_beginning_and_goes_on(site: Site) -> None:
    with site.stream("logs") as stream:
        found = stream.receive()
        assert found.startswith(b"up") and b"later" not in found
        with site.stream(site.once) as call:
            call.send(b"later")
            assert call.rest() == b"you said later"
        while b"served later" not in found:
            found += stream.receive()
            assert not stream.closed
        stream.end()


def test_who_may_not_gets_an_ordinary_answer(site: Site) -> None:
    for target, token, status, reason in (
        (site.echo, "stranger", 403, "token"),
        ("port:0", "", 400, "There is no target"),
    ):
        with pytest.raises(Refused) as refused:
            site.stream(target, token)
        assert f" {status} " in refused.value.status and reason in refused.value.body


def test_a_request_that_isnt_a_websocket_is_told_so(site: Site) -> None:
    with pytest.raises(Exception, match="speaks WebSocket only"):
        site.server.call("/api/project/main/streams/ports?target=ssh", method="GET")


def test_an_agents_end_needs_its_ticket(site: Site) -> None:
    class Dialled(Stream):
        def __init__(self, path: str) -> None:
            self._open(site.server.url, path, site.server.token)

    with pytest.raises(Refused) as refused:
        Dialled("/agent/streams/6dc3a4b1-bf89-4d1b-b200-f7d46ee0fc36")
    assert " 403 " in refused.value.status


def test_wherever_it_is_cut_nothing_is_left(site: Site) -> None:
    def cut() -> None:
        for target in (site.echo, site.flood, site.nobody):
            site.stream(target).cut()  # at once
            ended = site.stream(target)
            ended.end()
        midway = site.stream(site.echo)
        midway.send(bytes(500_000))  # what comes back is never read
        midway.cut()
        flooded = site.stream(site.flood)
        flooded.exactly(1_000_000)
        flooded.cut()

    settled(site, cut)


def test_200_at_once_and_one_that_doesnt_read_stops_no_other(site: Site) -> None:
    def many() -> None:
        stuck = site.stream(site.flood)  # never read: it fills its own buffers
        with ThreadPoolExecutor(16) as threads:
            streams = list(threads.map(lambda _: site.stream(site.echo), range(200)))
        for number, stream in enumerate(streams):
            stream.send(b"%d" % number * 1000)
        for number, stream in enumerate(streams):
            assert stream.exactly(len(b"%d" % number * 1000)) == b"%d" % number * 1000
        for number, stream in enumerate(streams):
            stream.cut() if number % 2 else stream.end()
        stuck.cut()

    settled(site, many)


def test_the_jobs_end_by_its_user_ends_its_streams(site: Site) -> None:
    """The last one: the job is stopped."""
    stream = site.stream(site.echo)
    stream.send(b"x")
    assert stream.exactly(1) == b"x"
    site.server.call("/api/project/main/runs/stop", {"runs_names": ["ports"], "abort": True})
    with stream:
        assert stream.rest() == b"" and stream.closed is not None
    until("the run to end", lambda: run_of(site.server, "ports")["status"] == "terminated")
    with pytest.raises(Refused, match="isn't running"):
        site.stream(site.echo)
