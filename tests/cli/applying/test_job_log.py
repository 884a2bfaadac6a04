"""A job's log over streams: nothing is lost or repeated, whatever is cut, and pages go on where streams end."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from chalicelib.errors import NotSupported
from cli.applying.follow import follow
from cli.applying.job_log import JobLog, LogReader, last_lines
from cli.connection.client import Client
from cli.connection.session import Session
from cli.connection.streams import Stream
from cli.screen.terminal import Terminal
from tests.cli.conftest import Dstack
from tests.cli.far_end import Far, FarEnd
from tests.cli.plane import Plane, finished, run

PATIENCE = 120.0
JOB = {"job_spec": {"replica_num": 0, "job_num": 1}, "job_submissions": [{"id": "one", "status": "running"}]}


@dataclass
class Server:
    """Streams of a real connection, and pages of the whole log."""

    far: FarEnd | None
    pages: bytes = b""
    requests: list[Any] = field(default_factory=list)
    streams: list[Any] = field(default_factory=list)
    project: str = "main"

    def stream(self, run_name: str, query: dict[str, Any]) -> Stream:
        self.streams.append(query)
        if self.far is None:
            raise NotSupported("no streams here")
        return Client(self.far.url, "t", "main").stream(run_name, query)

    def in_project(self, path: str, body: Any) -> Any:
        self.requests.append(body)
        return {"logs": [{"timestamp": "1", "message": base64.b64encode(self.pages).decode()}], "next_token": None}


def followed(server: Server, since: str | None = None) -> JobLog:
    session: Any = Session(Terminal(env={}, watched=False), server)  # type: ignore[arg-type]
    log = JobLog(session, "train", since)
    assert log.turn_to(JOB) and not log.turn_to(JOB)
    return log


def read(log: JobLog) -> None:
    """As the one who follows does, until the stream ends."""
    while log.fileno() >= 0 and not log.write_arrived(PATIENCE):
        pass


def plays(*lives: Callable[[Far], None]) -> FarEnd:
    remaining = iter(lives)

    def play(far: Far) -> None:
        next(remaining)(far)

    return FarEnd(play)


def sends(data: bytes, end: Callable[[Far], None]) -> Callable[[Far], None]:
    def play(far: Far) -> None:
        far.send(data)
        end(far)

    return play


def test_a_stream_that_ends_in_order_is_all_of_it(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with plays(sends(b"one\ntwo\n", lambda far: far.close())) as far:
        server = Server(far, b"one\ntwo\n")
        log = followed(server, since="2026-01-01T00:00:00Z")
        read(log)
        log.drain(ended=True)
    assert capfdbinary.readouterr().out == b"one\ntwo\n" and server.requests == []
    assert server.streams == [{"target": "logs", "replica": 0, "job": 1, "start_time": "2026-01-01T00:00:00Z"}]


class Early:
    """A stream whose first bytes came with the server's answer."""

    pending = False

    def __init__(self) -> None:
        self.left = [b"early\n"]

    def receive(self, timeout: float = 0.0) -> bytes | None:
        return self.left.pop() if self.left else None


def test_nothing_is_written_before_the_stage_could_be_said(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    class Quick(Server):
        def stream(self, run_name: str, query: dict[str, Any]) -> Any:
            return Early()

    log = followed(Quick(None))
    assert capfdbinary.readouterr().out == b""
    log.drain(ended=False)
    assert capfdbinary.readouterr().out == b"early\n"


def test_a_new_stream_goes_on_where_the_last_was_cut(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    cut, remainder = sends(b"one\ntw", lambda far: far.cut()), sends(b"one\ntwo\nthree\n", lambda far: far.close())
    with plays(cut, remainder) as far:
        server = Server(far)
        log = followed(server)
        read(log)
        log.drain(ended=False)
        read(log)
    assert capfdbinary.readouterr().out == b"one\ntwo\nthree\n" and len(server.streams) == 2


@pytest.mark.parametrize("already", [b"", b"o", b"one\ntwo\n"])
def test_pages_go_on_where_a_stream_was_cut_for_good(already: bytes, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    play = sends(already, lambda far: far.cut()) if already else (lambda far: far.cut())
    with plays(play) as far:
        server = Server(far, b"one\ntwo\n")
        log = followed(server)
        read(log)
        server.far = None
        log.drain(ended=False)
        server.pages += b"three\n"
        log.drain(ended=True)
    assert capfdbinary.readouterr().out == b"one\ntwo\nthree\n"


def test_where_there_are_no_streams_pages_are_read(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    server = Server(None, b"one\n")
    log = followed(server)
    assert log.fileno() == -1
    log.drain(ended=False)
    log.drain(ended=True)
    assert capfdbinary.readouterr().out == b"one\n"


def test_what_is_still_on_its_way_when_the_job_has_ended_is_waited_for(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    late = threading.Event()

    def play(far: Far) -> None:
        far.send(b"one\n")
        assert late.wait(PATIENCE)
        far.send(b"two\n")
        far.close()

    with plays(play) as far:
        server = Server(far)
        log = followed(server)
        late.set()
        log.drain(ended=True)
    assert capfdbinary.readouterr().out == b"one\ntwo\n" and server.requests == []


def test_a_retry_is_a_log_of_its_own(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with plays(sends(b"first\n", lambda far: far.close()), sends(b"second\n", lambda far: far.close())) as far:
        server = Server(far)
        log = followed(server)
        read(log)
        assert log.turn_to({**JOB, "job_submissions": [{"id": "two", "status": "running"}]})
        read(log)
    assert capfdbinary.readouterr().out == b"first\nsecond\n"


def test_an_ended_job_has_pages_only(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    server = Server(None, b"all\n")
    session: Any = Session(Terminal(env={}, watched=False), server)  # type: ignore[arg-type]
    log = JobLog(session, "train")
    log.turn_to({**JOB, "job_submissions": [{"id": "one", "status": "done"}]})
    log.drain(ended=True)
    assert server.streams == [] and capfdbinary.readouterr().out == b"all\n"


@pytest.mark.slow
def test_a_job_that_prints_without_a_pause_is_looked_at_all_the_same() -> None:
    reads, writes = os.pipe()
    os.write(writes, b"more")

    class Flood(JobLog):
        def fileno(self) -> int:
            return reads

        def write_arrived(self, timeout: float = 0.0) -> bool:
            return False  # there is more

        def drain(self, ended: bool) -> None:
            return

        def turn_to(self, job: dict[str, Any]) -> bool:
            return False

    answers = [run("train"), run("train"), finished()]

    class Answers:
        def get_run(self, name: str) -> dict[str, Any]:
            return answers.pop(0)

    session = cast(Session, Answers())
    assert follow(session, "train", log=Flood(session, "train"))["status"] == "done" and not answers
    os.close(reads)
    os.close(writes)


@pytest.mark.parametrize("message", ["€uro", "a", "YQ", "Y Q==", None, 7, ["YQ=="]], ids=repr)
def test_what_isnt_base64_is_said(dstack: Dstack, plane: Plane, message: Any) -> None:
    plane.answers |= {
        "/runs/get": finished("train"),
        "/logs/poll": {"logs": [{"message": message}], "next_token": None},
    }
    ended = dstack("logs", "train")
    assert ended.code == 1 and "The server sent a log that isn't base64" in ended.err, ended


# --- the last lines -----------------------------------------------------


@dataclass
class Stored:
    """A log of pieces with their times, in pages of two, from either end."""

    pieces: list[tuple[str, bytes]]
    read: int = 0
    project: str = "main"

    def in_project(self, path: str, body: Any) -> Any:
        inside = [piece for piece in self.pieces if piece[0] >= (body["start_time"] or "")]
        ordered = inside[::-1] if body["descending"] else inside
        at = int(body["next_token"] or 0)
        page = ordered[at : at + 2]
        self.read += len(page)
        return {
            "logs": [{"timestamp": time, "message": base64.b64encode(data).decode()} for time, data in page],
            "next_token": str(at + 2) if at + 2 < len(ordered) else None,
        }


PIECES = [
    ("1", b"one\ntw"),
    ("1", b"o\n"),
    ("2", b"50%\r100%"),
    ("2", b"\n"),
    ("2", b""),
    ("3", b"four\nfive\n"),
    ("4", b"s"),
]


@pytest.mark.parametrize("since", [None, "2", "9"])
@pytest.mark.parametrize("count", range(9))
def test_the_last_lines_are_those(capfdbinary: pytest.CaptureFixture[bytes], count: int, since: str | None) -> None:
    server: Any = Stored(PIECES)
    session = Session(Terminal(env={}, watched=False), server)
    start, skip = last_lines(LogReader(session, "train", "one", since), count)
    LogReader(session, "train", "one", start, skip=skip).drain()
    text = b"".join(data for time, data in PIECES if time >= (since or ""))
    lines = [line + b"\n" for line in text.split(b"\n")]
    wanted = b"".join(lines[len(lines) - min(count, len(lines)) :])[:-1] if count else b""
    assert capfdbinary.readouterr().out == wanted


def test_of_a_long_log_only_the_end_is_read() -> None:
    server: Any = Stored([(f"{at:04}", b"line\n") for at in range(1000)])
    last_lines(LogReader(Session(Terminal(env={}, watched=False), server), "train", "one"), 5)
    assert server.read < 12


def test_what_is_not_wanted_of_a_stream_is_skipped_once(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with plays(sends(b"one\ntwo\n", Far.cut), sends(b"one\ntwo\nthree\n", lambda far: far.close())) as far:
        session: Any = Session(Terminal(env={}, watched=False), Server(far))  # type: ignore[arg-type]
        log = JobLog(session, "train", "since", skip=4)
        assert log.turn_to(JOB)
        read(log)
        log.drain(ended=False)
        read(log)
    assert capfdbinary.readouterr().out == b"two\nthree\n"
