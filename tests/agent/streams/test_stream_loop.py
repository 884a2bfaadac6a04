"""A stream between two sockets, on a loop whose thread the test stands in for."""

from __future__ import annotations

import errno
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

import pytest

from chalicelib.agent.kernel import networks
from chalicelib.agent.streams import websocket
from chalicelib.agent.streams.stream_loop import (
    CLOSE_SECONDS,
    FULL,
    SILENCE,
    STALLED,
    TICK,
    LazySocketStream,
    Refusal,
    SocketStream,
    StreamLoop,
)
from chalicelib.agent.streams.websocket import Closed, Peer

FRAME = websocket.frame(websocket.BINARY, bytes(FULL), False)


@dataclass
class Stream:
    loop: StreamLoop
    joined: SocketStream
    server: socket.socket
    job: socket.socket
    at: list[float]
    rest: bytes = b""  # of a piece that was sent in part

    def turn(self) -> None:
        while self.loop.turn(0):
            pass

    def fill(self, sender: socket.socket, data: bytes) -> None:
        """Send all that is taken."""
        blocked = False
        while True:
            try:
                self.rest = self.rest or data
                self.rest, blocked = self.rest[sender.send(self.rest) :], False
            except BlockingIOError:
                if blocked:
                    return
                blocked = True
                self.turn()

    @property
    def open(self) -> bool:
        return self.joined in self.loop.streams

    def passes(self, seconds: float) -> None:
        """So much time, with the looks that it brings."""
        end = self.at[0] + seconds
        while self.at[0] < end:
            self.at[0] = min(end, self.at[0] + TICK)
            self.joined.check(self.at[0])

    def ping(self) -> None:
        self.server.send(websocket.frame(websocket.PING, b"", False))
        self.turn()


@pytest.fixture
def stream() -> Iterator[Stream]:
    at = [1000.0]
    loop = StreamLoop(lambda: at[0])
    server, near = socket.socketpair()
    job, far = socket.socketpair()
    for end in (server, job):
        end.setblocking(False)
    joined = SocketStream(loop, near, Peer(client=True), far)
    joined.begin()
    yield Stream(loop, joined, server, job, at)
    loop.close()
    for end in (server, job):
        end.close()


def test_a_job_that_takes_nothing_for_long_loses_its_stream(stream: Stream) -> None:
    """It isn't read meanwhile, so nobody would hear that the server has gone."""
    stream.fill(stream.server, FRAME)
    assert stream.joined.full()
    stream.server.close()
    stream.passes(STALLED)
    assert stream.open, "the server itself waits for 600 seconds"
    stream.passes(TICK)
    assert not stream.open


def test_so_does_a_client_that_takes_nothing_of_what_the_job_says(stream: Stream) -> None:
    stream.fill(stream.job, bytes(FULL))
    for _ in range(11):
        stream.ping()
        stream.passes(STALLED / 11)
        assert stream.open, "the server is there, as its pings say"
    stream.ping()
    stream.passes(TICK)
    assert not stream.open


@pytest.mark.parametrize("direction", ["to the job", "to the server"])
def test_one_that_takes_a_little_keeps_it(stream: Stream, direction: str) -> None:
    down = direction == "to the job"
    sender, taker, data = (stream.server, stream.job, FRAME) if down else (stream.job, stream.server, bytes(FULL))
    stream.fill(sender, data)
    for turn in range(80):
        stream.passes(SILENCE / 4)
        if not down:
            stream.ping()
        if turn % 20 == 10:
            while True:
                try:
                    taker.recv(FULL)
                except BlockingIOError:
                    break
                stream.turn()
            stream.fill(sender, data)
        assert stream.open


def test_one_on_which_nothing_is_to_be_sent_may_be_idle(stream: Stream) -> None:
    for _ in range(20):
        stream.ping()
        stream.passes(SILENCE - TICK)
    assert stream.open
    stream.passes(TICK)
    assert not stream.open, "the server has gone"


def got(stream: Stream) -> tuple[bytes, websocket.Closed | None]:
    """What the server got so far, and how it was closed."""
    peer, seen = Peer(client=False), b""
    while True:
        try:
            part = stream.server.recv(FULL)
        except BlockingIOError:
            break
        if not part:
            break
        seen += b"".join(peer.receive(part)[0])
    return seen, peer.closed


def test_a_job_that_closes_ends_its_stream_in_good_order(stream: Stream) -> None:
    stream.job.send(b"last words")
    stream.job.close()
    stream.turn()
    assert got(stream) == (b"last words", websocket.Closed(1000))
    assert stream.open, "the server hasn't closed yet"
    stream.server.send(Peer(client=False).close())
    stream.turn()
    assert not stream.open


def test_a_job_that_takes_no_more_ends_its_stream_in_words(stream: Stream) -> None:
    stream.server.send(FRAME[: len(FRAME) // 2])
    stream.turn()
    stream.job.shutdown(socket.SHUT_RD)
    stream.server.send(FRAME[len(FRAME) // 2 :])
    stream.turn()
    assert got(stream) == (b"", websocket.Closed(1001, "the job closed the connection"))
    stream.server.send(Peer(client=False).close())
    stream.turn()
    assert not stream.open, "what the job can't be given any more isn't waited for"


def test_a_job_that_has_said_all_gets_nothing_more(stream: Stream) -> None:
    stream.job.shutdown(socket.SHUT_WR)
    stream.turn()
    stream.server.send(FRAME)
    stream.turn()
    with pytest.raises(BlockingIOError):
        stream.job.recv(1)


def test_a_job_that_broke_off_ends_its_stream_in_words() -> None:
    loop = StreamLoop(lambda: 0.0)
    server, near = socket.socketpair()
    server.setblocking(False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        job, _ = listener.accept()
    joined = SocketStream(loop, near, Peer(client=True), far)
    joined.begin()
    job.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    job.close()  # with a reset
    while loop.turn(0):
        pass
    peer = Peer(client=False)
    peer.receive(server.recv(FULL))
    assert peer.closed == websocket.Closed(1001, "the job's end of the connection broke")
    loop.close()
    server.close()


def test_what_came_behind_the_handshake_is_passed_on_first() -> None:
    loop = StreamLoop(lambda: 0.0)
    server, near = socket.socketpair()
    job, far = socket.socketpair()
    job.setblocking(False)
    joined = SocketStream(loop, near, Peer(client=True), far)
    server.send(websocket.frame(websocket.BINARY, b" late", False))
    joined.begin(websocket.frame(websocket.BINARY, b"early", False))
    while loop.turn(0):
        pass
    assert job.recv(100) == b"early late"
    loop.close()
    assert job.recv(100) == server.recv(100) == b"", "closing the loop ends its streams"
    for end in (server, job):
        end.close()


def test_a_refused_stream_says_why_and_waits_for_the_servers_close() -> None:
    at = [0.0]
    loop = StreamLoop(lambda: at[0])
    server, near = socket.socketpair()
    refusal = Refusal(loop, near, Peer(client=True), "no such port")
    refusal.begin()
    peer = Peer(client=False)
    peer.receive(server.recv(FULL))
    assert peer.closed == websocket.Closed(1011, "no such port")
    refusal.check(CLOSE_SECONDS - 0.1)
    assert refusal in loop.streams
    refusal.check(CLOSE_SECONDS)
    assert refusal not in loop.streams and server.recv(1) == b""
    loop.close()
    server.close()


def test_a_failure_of_one_action_is_printed_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    loop, done = StreamLoop(), threading.Event()
    loop.call(lambda: 1 // 0)  # type: ignore[func-returns-value]
    loop.call(done.set)
    assert done.wait(120)
    loop.close()
    assert "streams: ZeroDivisionError" in capsys.readouterr().err
    after: list[int] = []
    loop.call(lambda: after.append(1))
    assert after == [], "a closed loop starts no thread"


# --- streams that reach their job with the first byte -----------------------------------------------------------------


@dataclass
class Waiting:
    """A stream that nobody has used yet, to whoever may listen on a port."""

    loop: StreamLoop
    stream: LazySocketStream
    server: socket.socket
    begun: list[int]
    peer: Peer = field(default_factory=lambda: Peer(client=False))

    def send(self, data: bytes) -> None:
        self.server.send(self.peer.message(data))
        self.turns()

    def turns(self) -> None:
        while self.loop.turn(0.05):
            pass

    def received(self) -> list[bytes]:
        try:
            parts, back = self.peer.receive(self.server.recv(FULL))
        except BlockingIOError:
            return []
        self.server.send(back)
        self.turns()
        return parts


@contextmanager
def waiting_for(port: int, at_once: Mapping[int, OSError] = MappingProxyType({})) -> Iterator[Waiting]:
    """`at_once`: what is wrong with a place before a connection is on its way there."""
    loop, begun = StreamLoop(), []
    server, near = socket.socketpair()
    server.setblocking(False)

    def connecting(place: int) -> socket.socket:
        begun.append(place)
        if place in at_once:
            raise at_once[place]
        return networks.start_connecting(None, port, place)

    stream = LazySocketStream(loop, near, Peer(client=True), connecting)
    stream.begin()
    yield Waiting(loop, stream, server, begun)
    loop.close()
    server.close()


def test_a_job_isnt_kept_busy_by_a_stream_that_waits() -> None:
    with socket.create_server(("127.0.0.1", 0)) as job, waiting_for(job.getsockname()[1]) as stream:
        job.setblocking(False)
        stream.turns()
        with pytest.raises(BlockingIOError):
            job.accept()
        stream.send(b"hello")
        app, _ = job.accept()
        with app:
            assert app.recv(100) == b"hello"
            app.sendall(b"welcome")
            stream.turns()
            assert stream.received() == [b"welcome"] and stream.begun == [0]
            stream.send(b"more")
            assert app.recv(100) == b"more"
        stream.turns()
        stream.received()
        assert stream.peer.closed == Closed(websocket.NORMAL)


def test_one_that_listens_on_ipv6_alone_is_found() -> None:
    try:
        job = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with job, waiting_for(job.getsockname()[1]) as stream:
        stream.send(b"hello")
        app, _ = job.accept()
        with app:
            assert app.recv(100) == b"hello" and stream.begun == [0, 1]


def test_a_place_that_refuses_at_once_is_followed_by_the_next() -> None:
    refused = OSError(errno.ECONNREFUSED, "Connection refused")
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with waiting_for(port, {0: refused}) as stream:
        stream.send(b"hello")
        assert stream.begun == [0, 1]


def test_that_there_is_no_other_place_tells_nobody_anything() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with waiting_for(port, {1: OSError(errno.EAFNOSUPPORT, "no IPv6")}) as stream:
        stream.send(b"hello")
        stream.received()
        assert stream.peer.closed == Closed(websocket.FAILED, "the job's port can't be reached: nothing listens there")


def test_what_else_keeps_a_port_out_of_reach_is_said() -> None:
    with waiting_for(1, {0: OSError(errno.EACCES, "Permission denied")}) as stream:
        stream.send(b"hello")
        stream.received()
        assert stream.peer.closed == Closed(websocket.FAILED, "the job's port can't be reached: Permission denied")
        assert stream.begun == [0]


def test_that_nothing_listens_is_said_and_nothing_is_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with waiting_for(port) as stream:
        stream.send(b"hello")
        assert stream.received() == []
        assert stream.peer.closed == Closed(websocket.FAILED, "the job's port can't be reached: nothing listens there")
        assert not stream.loop.streams


def test_one_that_nobody_ever_used_leaves_nothing() -> None:
    with waiting_for(1) as stream:
        stream.server.send(stream.peer.close(websocket.LEAVING, "enough"))
        stream.turns()
        assert not stream.loop.streams and stream.begun == []
