"""The client's end of a stream, against a server that does what servers and networks do."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from chalicelib.errors import DstackError, Refused
from cli.connection.client import Client
from cli.connection.streams import CHUNK, LOST, NORMAL, Stream
from cli.ssh.proxy import carry, run
from tests.cli.far_end import Far, FarEnd

PATIENCE = 120.0
QUERY = {"target": "ssh", "replica": 0, "job": 1, "start_time": None}


def opened(server: FarEnd) -> Stream:
    return Client(server.url, "secret-token", "main").stream("my run", QUERY)


def read_all(stream: Stream) -> bytes:
    found = b""
    while (data := stream.receive(PATIENCE)) is not None:
        assert data, "nothing came for a minute"
        found += data
    return found


def test_it_asks_for_what_is_wanted() -> None:
    with FarEnd(lambda far: far.close()) as server:
        assert read_all(opened(server)) == b""
    (request,) = server.requests
    assert request.startswith("GET /api/project/main/streams/my%20run?target=ssh&replica=0&job=1 HTTP/1.1\r\n")
    assert "\r\nAuthorization: Bearer secret-token\r\n" in request and "\r\nUpgrade: websocket\r\n" in request


@pytest.mark.parametrize("size", [1, 125, 126, 65_535, 65_536, 300_000])
def test_bytes_pass_both_ways_whatever_their_number(size: int) -> None:
    data = os.urandom(size)
    got = []

    def play(far: Far) -> None:
        received = b""
        while len(received) < size:
            kind, payload = far.receive()
            if kind == 2:
                received += payload
        got.append(received)
        far.send(data)
        far.close()

    with FarEnd(play) as server:
        stream = opened(server)
        stream.send(data)
        assert read_all(stream) == data and (stream.code, stream.reason) == (NORMAL, "")
        stream.close()
    assert got == [data]


def test_a_message_is_passed_on_before_all_of_it_has_come() -> None:
    go_on = threading.Event()

    def play(far: Far) -> None:
        frame = far.frame(b"x" * 1000)
        far.connection.sendall(frame[:500])
        assert go_on.wait(PATIENCE)
        far.connection.sendall(frame[500:])
        far.close()

    with FarEnd(play) as server:
        stream = opened(server)
        first = stream.receive(PATIENCE)
        assert first and set(first) == {ord("x")} and len(first) < 500
        go_on.set()
        assert len(first + read_all(stream)) == 1000


def test_pings_are_answered_between_data() -> None:
    answered = []

    def play(far: Far) -> None:
        far.send(b"one")
        far.send(b"are you there", 9)
        far.send(b"two")
        while (found := far.receive())[1] != b"are you there":
            assert found[0], "the client has left"
        answered.append(found[0])
        far.close()

    with FarEnd(play) as server:
        assert read_all(opened(server)) == b"onetwo"
    assert answered == [10]


@pytest.mark.parametrize(
    ("end", "code", "reason"),
    [
        (lambda far: far.close(1000), NORMAL, ""),
        (lambda far: far.close(1011, "the job's machine has left"), 1011, "the job's machine has left"),
        (lambda far: far.send(b"", 8), NORMAL, ""),
        (lambda far: far.cut(), LOST, "the connection was cut"),
        (lambda far: far.connection.sendall(b"\x82\x7e") or far.cut(), LOST, "the connection was cut"),
        (lambda far: far.connection.sendall(b"\x8b\x00"), 1002, "the server doesn't speak WebSocket"),
        (lambda far: far.connection.sendall(b"\x89\x7e\xff\xff"), 1002, "the server doesn't speak WebSocket"),
        (lambda far: far.connection.sendall(b"\x82\x81abcdx"), 1002, "the server doesn't speak WebSocket"),
    ],
)
def test_every_end_is_told(end: Any, code: int, reason: str) -> None:
    def play(far: Far) -> None:
        far.send(b"data")
        end(far)
        while far.receive()[0]:
            pass

    with FarEnd(play) as server:
        stream = opened(server)
        assert read_all(stream) == b"data"
        assert (stream.code, stream.reason) == (code, reason)
        assert stream.receive(0) is None, "it stays ended"
        stream.close()


def test_nothing_within_the_time_is_nothing() -> None:
    done = threading.Event()
    with FarEnd(lambda far: done.wait(PATIENCE) and None) as server:
        stream = opened(server)
        assert stream.receive(0) == b""
        stream.close()
        done.set()


def test_our_end_reaches_the_server_in_order() -> None:
    seen = []

    def play(far: Far) -> None:
        while (found := far.receive())[0]:
            seen.append(found)

    with FarEnd(play) as server:
        stream = opened(server)
        assert stream.receive(0) == b""
        stream.send(b"last words")
        stream.close()
        with pytest.raises(OSError):
            stream.send(b"x")
    assert [found for found in seen if found[0] != 10] == [(2, b"last words"), (8, b"\x03\xe8")]


@pytest.mark.parametrize(
    ("refuse", "message"),
    [
        ((400, {"detail": [{"msg": "The job train-0-0 isn't running.", "code": "error"}]}), "isn't running"),
        ((404, {"detail": "Not Found"}), "doesn't know /api/project/main/streams"),
        ((403, {"detail": {"msg": "Access denied", "code": None}}), "doesn't let this token"),
        ((200, {"hello": 1}), "HTTP 200"),
    ],
)
def test_a_refusal_is_told_in_the_servers_words(refuse: Any, message: str) -> None:
    with FarEnd(refuse=refuse) as server, pytest.raises(DstackError) as raised:
        opened(server)
    assert message in str(raised.value)


def test_an_endless_head_is_no_answer() -> None:
    with FarEnd(refuse=("400 No\r\n" + "A: b\r\n" * 200 + "C:", {})) as server, pytest.raises(Refused, match="headers"):  # type: ignore[arg-type]
        opened(server)


def test_no_server_is_told() -> None:
    with FarEnd() as server:
        url = server.url
    with pytest.raises(Refused, match="opened no stream"):
        Client(url, "t", "main").stream("train", QUERY)


# --- carrying SSH ----------------------------------------------------------------------------------------------------


class Pipes:
    def __init__(self) -> None:
        self.source, self.writes = os.pipe()
        self.reads, self.sink = os.pipe()

    def close(self, *ends: int) -> None:
        for end in ends:
            os.close(end)


def test_bytes_are_carried_until_the_server_ends_it() -> None:
    data = os.urandom(3 * CHUNK)

    def play(far: Far) -> None:
        received = b""
        while len(received) < len(data):
            kind, payload = far.receive()
            received += payload if kind == 2 else b""
        far.send(received[::-1])
        far.close()

    pipes = Pipes()
    with FarEnd(play) as server:
        stream = opened(server)
        thread = threading.Thread(target=carry, args=(stream, pipes.source, pipes.sink), daemon=True)
        thread.start()
        threading.Thread(target=_write, args=(pipes.writes, data), daemon=True).start()
        found = b""
        while len(found) < len(data):
            found += os.read(pipes.reads, CHUNK)
        thread.join(PATIENCE)
        assert not thread.is_alive() and found == data[::-1] and stream.code == NORMAL
    pipes.close(pipes.source, pipes.writes, pipes.reads, pipes.sink)


def _write(end: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(end, view) :]


def test_it_ends_when_ssh_leaves() -> None:
    seen = []

    def play(far: Far) -> None:
        while (found := far.receive())[0]:
            seen.append(found[0])

    pipes = Pipes()
    with FarEnd(play) as server:
        stream = opened(server)
        thread = threading.Thread(target=carry, args=(stream, pipes.source, pipes.sink), daemon=True)
        thread.start()
        os.write(pipes.writes, b"hello")
        os.close(pipes.writes)
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert 8 in seen[seen.index(2) :]  # an answer to a ping may still follow
    pipes.close(pipes.source, pipes.reads, pipes.sink)


ESCAPES = "\x1b]0;yours\x07the job's \x1b[2Jmachine\nhas left"


@pytest.mark.parametrize(
    "answers",
    [
        {"play": lambda far: far.close(1011, ESCAPES)},
        {"refuse": (400, {"detail": [{"msg": ESCAPES, "code": "error"}]})},
    ],
    ids=["the machine", "the server"],
)
def test_what_the_other_side_says_is_only_read(
    answers: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipes = Pipes()
    with FarEnd(**answers) as server:
        process_input = {
            "url": server.url,
            "token": "secret-token",
            "project": "main",
            "run": "train",
            "replica": 0,
            "job": 0,
        }
        (tmp_path / "endpoint.json").write_text(json.dumps(process_input))
        assert run(tmp_path / "endpoint.json", pipes.source, pipes.sink) == 1
    assert capsys.readouterr().err == "the job's machine has left\n"
    pipes.close(pipes.writes, pipes.source, pipes.reads, pipes.sink)
