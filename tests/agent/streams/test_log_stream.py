"""A job's log over a WebSocket: the whole of it, in order, to its end; on a real loop, with spools that are written as
the test says."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.agent.kernel import networks
from chalicelib.agent.kernel.spool import SpoolReader, SpoolWriter
from chalicelib.agent.kernel.tasks import TaskFolder
from chalicelib.agent.streams import log_stream, websocket
from chalicelib.agent.streams.log_stream import LogFollower, LogStreams, inode_of, parse_time
from chalicelib.agent.streams.stream_loop import StreamLoop
from chalicelib.agent.streams.websocket import Closed, Peer
from tests.harness.descriptors import descriptors, opened_since
from tests.harness.ports import free_port
from tests.harness.server import PATIENCE, until


@dataclass
class Task:
    folder: TaskFolder
    writer: SpoolWriter

    @classmethod
    def at(cls, data: Path, name: str = "task") -> Task:
        folder = TaskFolder(str(data), name)
        folder.create({"spec": {}})
        folder.write_state({"state": "running"})
        return cls(folder, SpoolWriter(folder.log))

    def end(self) -> None:
        self.writer.close()
        self.folder.write_state({"state": "exited"})


class Reader:
    """The other end of one connection."""

    def __init__(self, sock: socket.socket, client: bool) -> None:
        self.sock, self.peer = sock, Peer(client)
        sock.settimeout(PATIENCE)

    def receive(self) -> bytes:
        while self.peer.closed is None:
            data = self.sock.recv(65536)
            if not data:
                return b""
            parts, back = self.peer.receive(data)
            if back:
                self.sock.sendall(back)
            if parts:
                return b"".join(parts)
        return b""

    def exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size and (more := self.receive()):
            found += more
        return found

    def rest(self) -> bytes:
        return b"".join(iter(self.receive, b""))


@dataclass
class Site:
    data: Path
    loop: StreamLoop
    logs: LogStreams
    port: int
    calls: list[socket.socket] = field(default_factory=list)

    def here(self) -> None:
        """In the machine's own network, as an agent does."""
        listener = networks.log_port(self.port)
        assert listener is not None
        self.logs.serve_on(listener)

    def stream(self, task: str = "task", since: int = 0) -> Reader:
        """What a stream's client would get."""
        near, far = socket.socketpair()
        self.calls.append(near)
        begun = self.logs.opener(task, {"since": since})(self.loop, far, Peer(client=True))
        self.loop.call(begun.begin)
        return Reader(near, client=False)

    def connect(self, path: str = "/logs_ws", headers: dict[str, str] | None = None) -> tuple[str, Reader]:
        call = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        self.calls.append(call)
        request = websocket.request(path, websocket.new_key(), headers or {"Host": f"localhost:{self.port}"})
        call.sendall(request[:20])
        call.sendall(request[20:])
        head = b""
        while b"\r\n\r\n" not in head:
            more = call.recv(1)
            assert more, head
            head += more
        return head.decode().partition("\r\n")[0], Reader(call, client=True)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    port, loop = free_port(), StreamLoop()
    made = Site(tmp_path, loop, LogStreams(loop, lambda task: TaskFolder(str(tmp_path), task), port), port)
    yield made
    for task in ("task", "other"):
        made.logs.unserve(task)
    loop.close()
    for call in made.calls:
        call.close()


# --- the stream -------------------------------------------------------------------------------------------------------


def test_the_log_from_its_beginning_then_as_it_is_written_and_1000_at_the_end(site: Site) -> None:
    task = Task.at(site.data)
    task.writer.append(1, b"before ")
    reader = site.stream()
    assert reader.exactly(7) == b"before "
    task.writer.append(2, b"after")
    site.logs.grew("task")
    assert reader.exactly(5) == b"after"
    task.writer.append(3, b"last")
    task.end()
    assert site.logs.reading("task")
    site.logs.grew("task")
    assert reader.rest() == b"last" and reader.peer.closed == Closed(1000)
    until("the reader to be forgotten", lambda: not site.logs.reading("task"))


@pytest.mark.slow
def test_a_long_log_reaches_a_slow_reader_whole_and_a_quick_one_is_not_kept_waiting(site: Site) -> None:
    task = Task.at(site.data)
    log = b"".join(b"%07d\n" % number for number in range(400_000))
    for at in range(0, len(log), 50_000):
        task.writer.append(1, log[at : at + 50_000])
    slow = site.stream()
    other = Task.at(site.data, "other")
    other.writer.append(1, b"quick")
    assert site.stream("other").exactly(5) == b"quick"
    task.end()
    site.logs.grew("task")
    assert slow.rest() == log and slow.peer.closed == Closed(1000)


def test_from_a_moment_on(site: Site) -> None:
    task = Task.at(site.data)
    for at in (10, 20, 30):
        task.writer.append(at, b"%d " % at)
    task.end()
    assert [site.stream(since=since).rest() for since in (0, 10, 11, 30, 31)] == [
        b"10 20 30 ", b"10 20 30 ", b"20 30 ", b"30 ", b"",
    ]  # fmt: skip


def shortened(task: Task) -> int:
    """More than stays on the host once the server has it; the bytes that are gone."""
    for number in range(80):
        task.writer.append(number + 1, bytes([number]) * 500_000)
    SpoolReader(task.folder.log).trim(80 * 500_000)
    segments = [int(path.name) for path in (Path(task.folder.log) / "replay").iterdir()]
    return min(segments)


@pytest.mark.slow
def test_a_program_is_told_that_the_beginning_is_gone_and_people_read_a_line(site: Site) -> None:
    task = Task.at(site.data)
    gone = shortened(task)
    task.end()
    reader = site.stream()
    assert reader.rest() == b"" and reader.peer.closed is not None
    assert reader.peer.closed == Closed(1011, f"{gone} bytes of the log aren't on its host any more")
    assert len(site.stream(since=80).rest()) == 500_000, "what it asks for is there"
    site.logs.serve("task", None, lambda: [os.getpid()])
    status, people = site.connect()
    text = people.rest()
    assert " 101 " in status and f"… {gone} bytes of log aren't on this host any more".encode() in text[:100]
    assert len(text) > 80 * 500_000 - gone and people.peer.closed == Closed(1000)


def test_a_removed_task_ends_its_streams(site: Site) -> None:
    task = Task.at(site.data)
    task.writer.append(1, b"x")
    reader = site.stream()
    assert reader.exactly(1) == b"x"
    task.folder.delete()
    site.logs.grew("task")
    assert reader.rest() == b"" and reader.peer.closed == Closed(1000)


def test_a_reader_that_left_is_forgotten_and_one_that_stays_holds_its_task_for_seconds_only(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task.at(site.data)
    reader = site.stream()
    task.end()
    assert site.logs.reading("task")
    monkeypatch.setattr(log_stream, "LINGER", 0.0)
    assert not site.logs.reading("task")
    reader.sock.close()
    until("the reader to be forgotten", lambda: not site.loop.streams)


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=20), st.data())
@pytest.mark.slow
def test_a_follower_reads_each_byte_once(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], data: st.DataObject
) -> None:
    task = Task.at(Path(tmp_path_factory.mktemp("follower")))
    follower, agent, found = LogFollower(task.folder), SpoolReader(task.folder.log), b""
    task.writer.close()
    task.writer = SpoolWriter(task.folder.log, segment_bytes=40)
    for number, part in enumerate(parts):
        task.writer.append(number, part)
        if data.draw(st.booleans()):
            agent.trim(data.draw(st.integers(0, 600)))
        if data.draw(st.booleans()):
            found += follower.read()
    task.end()
    while not follower.over:
        found += follower.read()
    assert found == b"".join(parts) and not follower.missed


def test_who_always_has_more_to_do_lets_others_have_their_turn(site: Site) -> None:
    turns = [0]
    near, far = socket.socketpair()
    served = threading.Event()

    def again() -> None:
        turns[0] += 1
        if not served.is_set() and turns[0] < 100_000:
            site.loop.call(again)

    with near, far:
        site.loop.call(lambda: site.loop.watch(far, selectors.EVENT_READ, lambda _: served.set()))
        near.sendall(b"x")
        site.loop.call(again)
        assert served.wait(PATIENCE)
        done = threading.Event()
        site.loop.call(lambda: (site.loop.watch(far, 0, lambda _: None), done.set()))  # type: ignore[func-returns-value]
        assert done.wait(PATIENCE)
    assert turns[0] < 100_000


def test_an_order_that_names_no_place_is_for_the_whole_log(site: Site) -> None:
    Task.at(site.data).writer.append(1, b"all of it")
    near, far = socket.socketpair()
    site.calls.append(near)
    begun = site.logs.opener("task", {})(site.loop, far, Peer(client=True))
    site.loop.call(begun.begin)
    assert Reader(near, client=False).exactly(9) == b"all of it"


@pytest.mark.slow
def test_a_loop_that_ends_leaves_nothing(site: Site) -> None:
    Task.at(site.data).writer.append(1, b"x")
    before, threads = descriptors(), set(threading.enumerate())
    loop = StreamLoop()
    logs = LogStreams(loop, lambda task: TaskFolder(str(site.data), task), site.port)
    near, far = socket.socketpair()
    with near:
        begun = logs.opener("task", {})(loop, far, Peer(client=True))
        loop.call(begun.begin)
        assert Reader(near, client=False).exactly(1) == b"x"
        loop.close()
        loop.call(begun.step)
    assert not opened_since(before) and set(threading.enumerate()) <= threads
    StreamLoop().close()
    assert not opened_since(before)


# --- the port in the job's network ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_logs_ws_is_the_log_for_the_jobs_own_processes(site: Site) -> None:
    for name in ("task", "other"):
        Task.at(site.data, name).writer.append(1, name.encode())
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as elsewhere:
        site.logs.serve("other", None, lambda: [elsewhere.pid])
        site.logs.serve("task", None, lambda: [os.getpid()])
        status, reader = site.connect("/logs_ws?start_time=1970-01-01T00:00:00.000001%2B00:00")
        assert " 101 " in status and reader.exactly(4) == b"task"
        site.logs.unserve("task")
        assert " 404 " in site.connect()[0], "a process of no job"
        elsewhere.kill()


@pytest.mark.slow
def test_a_job_takes_only_so_many_places(site: Site) -> None:
    """Each costs the agent a descriptor, and callers in the job cost the machine's streams nothing."""
    Task.at(site.data).writer.append(1, b"x")
    site.logs.serve("task", None, lambda: [os.getpid()])
    readers = [site.connect()[1] for _ in range(16)]
    assert all(reader.exactly(1) == b"x" for reader in readers)
    assert " 404 " in site.connect()[0]
    assert site.stream().exactly(1) == b"x", "who comes through the server is let in"
    assert sum(each.dialled for each in list(site.loop.streams)) == 1
    readers[0].sock.close()
    until("a place to be free", lambda: " 101 " in site.connect()[0])


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", "404"), ("/logs_ws?start_time=yesterday", "404"), ("/api", "404"), ("/logs_ws/", "404"), ("//[", "404")],
)
def test_there_is_nothing_else(site: Site, path: str, status: str) -> None:
    Task.at(site.data)
    site.logs.serve("task", None, lambda: [os.getpid()])
    assert f" {status} " in site.connect(path)[0]


def test_what_is_no_websocket_is_told_so_and_who_says_nothing_is_cut(site: Site) -> None:
    Task.at(site.data)
    site.logs.serve("task", None, lambda: [os.getpid()])
    with socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE) as call:
        call.sendall(b"GET /logs_ws HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"speaks WebSocket only" in b"".join(iter(lambda: call.recv(4096), b""))
    with socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE) as call:
        until("the call to be accepted", lambda: site.loop.watched)
        (guest,) = site.loop.watched
        site.loop.call(lambda: guest.check(float("inf")))
        assert call.recv(1) == b""


def test_a_port_that_is_taken_is_tried_again_and_served_once(site: Site) -> None:
    Task.at(site.data)
    with socket.create_server(("127.0.0.1", site.port)):
        assert not site.logs.serve("task", None, lambda: [os.getpid()])
    assert site.logs.serve("task", None, lambda: [os.getpid()]) and site.logs.serve("task", None, lambda: [os.getpid()])
    assert " 101 " in site.connect()[0]


def test_the_socket_at_the_other_end_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as call, server.accept()[0] as taken:
            inode = inode_of(taken.getpeername()[1], taken.getsockname()[1])
            assert inode == str(os.fstat(call.fileno()).st_ino)
            assert log_stream.has_socket(os.getpid(), inode) and not log_stream.has_socket(os.getppid(), inode)
        assert inode_of(1, 2) == "" and not log_stream.has_socket(2**22 + 1, "1")


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("", 0),
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01T01:00:00.5+01:00", 500_000),
        ("1970-01-01T00:00:00.123456 00:00", 123_456),  # a plus that an address made a space
        ("1970-01-01T00:00:00.1234567Z", 123_456),  # what is less than a microsecond is left out
        ("1970-01-01 00:00:02", 2_000_000),
        ("1969-12-31T00:00:00Z", 0),
        ("1970-13-01T00:00:00Z", None),
        ("now", None),
    ],
)
def test_moments(text: str, micros: int | None) -> None:
    assert parse_time(text) == micros


def test_one_thread_serves_all(site: Site) -> None:
    before = set(threading.enumerate())
    task = Task.at(site.data)
    task.writer.append(1, b"x" * 1000)
    readers = [site.stream() for _ in range(100)]
    assert all(reader.exactly(1000) == b"x" * 1000 for reader in readers)
    new = [thread.name for thread in set(threading.enumerate()) - before]
    assert new.count("streams") == 1 and len(new) < 100, new
    task.end()
    site.logs.grew("task")
    assert all(reader.rest() == b"" for reader in readers)


def test_the_machines_own_port_is_taken_once_by_one_agent(site: Site) -> None:
    site.here()
    assert networks.log_port(site.port) is None
    other = LogStreams(site.loop, lambda task: TaskFolder(str(site.data), task), site.port)
    assert other.serve("task", None, list) is False


def test_so_many_may_be_silent_at_a_port(site: Site) -> None:
    Task.at(site.data)
    site.here()
    silent = [socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE) for _ in range(65)]
    assert silent[-1].recv(1) == b"", "the last is turned away at once"
    assert len(site.loop.watched) == 64
    silent[0].close()
    until("a place to be free", lambda: len(site.loop.watched) == 63)
    site.logs.serve("task", None, lambda: [os.getpid()])
    assert " 101 " in site.connect()[0]
    for each in silent:
        each.close()


def test_a_request_that_never_ends_is_cut(site: Site) -> None:
    site.here()
    with socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE) as call:
        call.sendall(b"GET /logs_ws HTTP/1.1\r\nX: " + b"x" * log_stream.HEAD_BYTES)
        with contextlib.suppress(ConnectionResetError):
            assert call.recv(1) == b""
    with socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE) as call:
        call.shutdown(socket.SHUT_WR)
        assert call.recv(1) == b"", "as is one that breaks off"
