"""Bytes between a session and the engine's connection, both played by sockets."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.sessions.container_session import BUFFER, Pump

PATIENCE = 120.0


def framed(stream: int, data: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


@dataclass
class Line:
    """A session: what the client and the engine hold of it."""

    raw: bool = False
    first: bytes = b""
    whole: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client, self._client = socket.socketpair()
        self.errors, self._errors = socket.socketpair()
        self.engine, self._engine = socket.socketpair()
        for each in (self.client, self.errors, self.engine):
            each.settimeout(PATIENCE)
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        stdin, stdout = os.dup(self._client.fileno()), os.dup(self._client.fileno())
        pump = Pump(stdin, stdout, self._errors.fileno(), self._engine, self.first, self.raw)
        self.whole.append(pump.run())
        os.close(stdin)
        os.close(stdout)
        self._client.close()
        self._errors.close()

    def ended(self) -> bool:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "it still waits"
        return self.whole[0]

    def close(self) -> None:
        for each in (self.client, self.errors, self.engine):
            each.close()
        self.ended()


@pytest.fixture
def lines() -> Iterator[list[Line]]:
    made: list[Line] = []
    yield made
    for line in made:
        line.close()


def begun(lines: list[Line], **more: object) -> Line:
    lines.append(Line(**more))  # type: ignore[arg-type]
    return lines[-1]


def read_all(sock: socket.socket) -> bytes:
    parts = []
    while part := sock.recv(1 << 20):
        parts.append(part)
    return b"".join(parts)


def test_output_and_errors_are_told_apart(lines: list[Line]) -> None:
    line = begun(lines, first=framed(1, b"early ")[:5])
    remainder = framed(1, b"early ")[5:] + framed(2, b"wrong") + framed(1, b"") + framed(1, b"late")
    for byte in remainder:
        line.engine.sendall(bytes([byte]))
    line.engine.close()
    assert line.ended()
    assert (read_all(line.client), read_all(line.errors)) == (b"early late", b"wrong")


def test_a_terminal_has_no_marks(lines: list[Line]) -> None:
    line = begun(lines, raw=True, first=b"$ ")
    assert line.client.recv(10) == b"$ ", "what came with the answer isn't kept until more comes"
    line.client.sendall(b"ls\n")
    assert line.engine.recv(10) == b"ls\n"
    line.engine.sendall(framed(1, b"x"))
    line.engine.close()
    assert line.ended() and read_all(line.client) == framed(1, b"x")


def test_the_end_of_input_is_passed_on_and_output_goes_on(lines: list[Line]) -> None:
    line = begun(lines)
    line.client.sendall(b"question")
    line.client.shutdown(socket.SHUT_WR)
    assert read_all(line.engine) == b"question"
    line.engine.sendall(framed(1, b"answer"))
    line.engine.close()
    assert line.ended() and read_all(line.client) == b"answer"


def test_neither_way_waits_for_the_other(lines: list[Line]) -> None:
    """The command prints more than any buffer holds before it reads; the client sends as much before it reads."""
    line, much = begun(lines), bytes(range(256)) * (BUFFER // 32)
    into = threading.Thread(target=lambda: (line.client.sendall(much), line.client.shutdown(socket.SHUT_WR)))
    out = threading.Thread(target=lambda: line.engine.sendall(framed(1, much)))
    got: list[bytes] = []
    reads = [threading.Thread(target=lambda sock=sock: got.append(read_all(sock))) for sock in (line.engine,)]
    for thread in (into, out, *reads):
        thread.start()
    received = b""
    while len(received) < len(much):
        received += line.client.recv(1 << 20)
    for thread in (into, out, *reads):
        thread.join(PATIENCE)
    line.engine.close()
    assert line.ended() and received == much and got == [much]


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("first", [b"", framed(1, b"x" * BUFFER)])
def test_a_client_that_goes_ends_it(lines: list[Line], raw: bool, first: bytes) -> None:
    """Also if the command says nothing, so that nothing is written that could fail."""
    line = begun(lines, raw=raw, first=first)
    line.client.close()
    assert not line.ended()
    assert line.engine.recv(1) == b"", "the engine hears of it, too"


def test_a_command_that_reads_no_more_may_still_speak(lines: list[Line]) -> None:
    line = begun(lines)
    line.engine.shutdown(socket.SHUT_RD)
    line.client.sendall(b"x" * 1000)
    line.engine.sendall(framed(1, b"done"))
    line.engine.close()
    assert line.ended() and read_all(line.client) == b"done"


@pytest.mark.slow
def test_a_part_may_be_of_any_size(lines: list[Line]) -> None:
    line, much = begun(lines), bytes(1 << 24)
    out = threading.Thread(target=lambda: line.engine.sendall(framed(1, much + b"end") + framed(2, b"wrong")))
    out.start()
    left = len(much) + 3
    while left:
        part = line.client.recv(min(left, 1 << 20))
        assert part, "it ended too early"
        left -= len(part)
    assert part.endswith(b"end") and line.errors.recv(10) == b"wrong"
    out.join(PATIENCE)


def pumped(engine: socket.socket, stdout: int, noticed: int = -1, signalled: Callable[[bytes], None] = print) -> bool:
    """Whether a session that nobody types into is pumped to its end."""
    stdin, typed = os.pipe()
    errors = os.open(os.devnull, os.O_WRONLY)
    try:
        return Pump(stdin, stdout, errors, engine, b"", False, noticed, signalled).run()
    finally:
        for each in (stdin, typed, errors):
            os.close(each)


def test_a_pipe_that_nobody_reads_ends_it_though_nothing_is_said() -> None:
    near, engine = socket.socketpair()
    taken, stdout = os.pipe()
    os.close(taken)
    with near, engine:
        assert pumped(engine, stdout) is False
    os.close(stdout)


def test_signals_are_noticed_before_the_end() -> None:
    near, engine = socket.socketpair()
    noticed, signal_pipe = os.pipe()
    os.write(signal_pipe, b"\x1c\x0f")
    near.close()
    received: list[bytes] = []
    with Path(os.devnull).open("wb") as stdout, engine:
        assert pumped(engine, stdout.fileno(), noticed, received.append) and received == [b"\x1c\x0f"]
    os.close(noticed)
    os.close(signal_pipe)


class Watched(Pump):
    """It tells which descriptors were ready at each of its looks."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.ready_sets: list[set[int]] = []

    def _ready(self) -> dict[int, int]:
        found = super()._ready()
        self.ready_sets.append(set(found))
        return found


def test_a_client_that_says_no_more_is_not_looked_at_again() -> None:
    """Its end is always ready, and would be looked at without a pause for as long as the command runs."""
    near, engine = socket.socketpair()
    noticed, signal_pipe = os.pipe()
    os.write(signal_pipe, b"1")

    def signalled(numbers: bytes) -> None:
        os.write(signal_pipe, b"2") if numbers == b"1" else near.close()

    with Path(os.devnull).open("rb") as stdin, Path(os.devnull).open("wb") as out, engine:
        pump = Watched(stdin.fileno(), out.fileno(), out.fileno(), engine, b"", False, noticed, signalled)
        assert pump.run()
        assert [stdin.fileno() in watched for watched in pump.ready_sets] == [
            True,
            *[False] * (len(pump.ready_sets) - 1),
        ]
    os.close(noticed)
    os.close(signal_pipe)


def test_what_nobody_reads_yet_is_left_with_the_engine() -> None:
    """Or the session would hold all that the command ever says."""
    near, engine = socket.socketpair()
    noticed, signal_pipe = os.pipe()
    read, write = os.pipe()
    os.write(signal_pipe, b"1")
    engine.sendall(framed(1, b"more"))
    held = near.fileno()

    def signalled(_: bytes) -> None:
        os.close(read)

    with Path(os.devnull).open("rb") as stdin, engine:
        pump = Watched(stdin.fileno(), write, write, near, framed(1, b"x" * BUFFER * 2), False, noticed, signalled)
        assert not pump.run()
        assert held not in pump.ready_sets[0]
    for each in (write, noticed, signal_pipe):
        os.close(each)
