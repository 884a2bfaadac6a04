"""HTTP and its errors."""

from __future__ import annotations

import gc
import itertools
import socket
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from chalicelib.errors import Forbidden, NotFound, Refused
from cli.connection.client import Client
from tests.cli.plane import Plane, steps


@pytest.fixture
def plane() -> Iterator[Plane]:
    """With a real connection to it."""
    with Plane().on_http() as found:
        yield found


def client(plane: Plane, **kwargs: Any) -> Client:
    return Client(plane.url, "t0ken", "main", sleep=lambda _: None, **kwargs)


def test_sends_what_the_contract_wants(plane: Plane) -> None:
    plane.answers["/runs/stop"] = None
    client(plane).in_project("runs/stop", {"runs_names": ["a"], "abort": False})
    (request,) = plane.requests
    assert request.path == "/api/project/main/runs/stop"
    assert request.headers["Authorization"] == "Bearer t0ken"
    assert request.headers["X-API-VERSION"] == "0.22.5"
    assert request.headers["Content-Type"] == "application/json"
    assert request.body == {"runs_names": ["a"], "abort": False}


def test_a_call_without_parameters_has_no_body(plane: Plane) -> None:
    plane.answers["/secrets/list"] = []
    assert client(plane).in_project("secrets/list") == []
    assert plane.requests[0].raw == b"" and "Content-Type" not in plane.requests[0].headers


def test_one_connection_serves_many_requests(plane: Plane) -> None:
    plane.answers["/runs/get"] = {}
    speaker = client(plane)
    speaker.in_project("runs/get", {})
    first = speaker._connection
    speaker.in_project("runs/get", {})
    assert first is not None and speaker._connection is first


@pytest.mark.slow
def test_ctrl_c_is_heeded_wherever_a_request_is(plane: Plane) -> None:
    """Python calls the handler of a signal when a function begins, and ignores what it raises in a finalizer."""
    plane.answers["/runs/get"] = {"status": "running"}
    speaker = client(plane)

    def interrupted(at: int) -> tuple[bool, bool]:
        """Whether the call of this number was reached, and whether the request ended there."""
        calls = 0

        def count(frame: FrameType, event: str, arg: object) -> None:
            nonlocal calls
            calls += event == "call"
            if calls == at:
                sys.setprofile(None)
                raise KeyboardInterrupt

        speaker.in_project("runs/get", {"run_name": "a"})  # what is left of it ends in the next one
        gc.disable()  # what other tests left behind may have finalizers, too
        sys.setprofile(count)
        try:
            speaker.in_project("runs/get", {"run_name": "a"})
        except KeyboardInterrupt:
            return True, True
        finally:
            sys.setprofile(None)
            gc.enable()
        return calls >= at, False

    heeded = list(itertools.takewhile(lambda seen: seen[0], map(interrupted, itertools.count(1))))
    assert len(heeded) > 50 and all(ended for _, ended in heeded)


def test_a_path_prefix_of_the_url_is_kept(plane: Plane) -> None:
    plane.answers["/prefix/api/users/get_my_user"] = {"username": "admin"}
    assert Client(plane.url + "/prefix/", "t", "main").post("/api/users/get_my_user") == {"username": "admin"}


def test_three_attempts_to_connect_a_second_apart() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refuses
        port = taken.getsockname()[1]
        naps: list[float] = []
        with pytest.raises(Refused) as caught:
            Client(f"http://127.0.0.1:{port}", "t", "main", sleep=naps.append).post("/api/users/get_my_user")
    assert naps == [1.0, 1.0]
    assert f"No server answers at http://127.0.0.1:{port}" in str(caught.value) and "dstack server" in str(caught.value)


def test_a_dropped_kept_connection_is_made_anew(plane: Plane) -> None:
    plane.answers["/runs/get"] = {"name": "x"}
    speaker = client(plane)
    speaker.in_project("runs/get", {})
    assert speaker._connection is not None
    speaker._connection.sock.shutdown(socket.SHUT_RDWR)  # as a server that lets go of idle connections
    assert speaker.in_project("runs/get", {})["name"] == "x"


@pytest.mark.parametrize(
    ("status", "body", "kind", "expected"),
    [
        (400, {"detail": [{"msg": "Run x not found", "code": "resource_not_exists"}]}, NotFound, ["Run x not found"]),
        (400, {"detail": [{"msg": "The quota is used up", "code": "error"}]}, Refused, ["The quota is used up"]),
        (400, {"detail": [{"msg": "one", "code": "error"}, {"msg": "two", "code": "error"}]}, Refused, ["one", "two"]),
        (400, {"detail": "plain"}, Refused, ["plain"]),
        (400, None, Refused, ["gave no reason"]),
        (401, {"detail": "Not authenticated"}, Forbidden, ["Not authenticated", "dstack project add --name main"]),
        (403, {"detail": {"msg": "Invalid token", "code": None}}, Forbidden, ["Invalid token", "--token TOKEN"]),
        (404, {"detail": {"msg": "Not found", "code": None}}, NotFound, ["has no project main", "project list"]),
        (404, {"detail": "Not Found"}, Refused, ["doesn't know", "up to date"]),
        (405, {"detail": "Method Not Allowed"}, Refused, ["doesn't know"]),
        (422, {"detail": [{"loc": ["body", "a", 0], "msg": "is odd"}]}, Refused, ["a.0: is odd"]),
        (500, {"detail": "boom"}, Refused, ["HTTP 500", "boom"]),
        (502, b"<html>", Refused, ["HTTP 502", "in a moment"]),
        (429, None, Refused, ["HTTP 429"]),
        (308, b"<html>", Refused, ["redirected the request (HTTP 308)", "its http or https"]),
        (200, b"<html>", Refused, ["not a control plane", "project list"]),
    ],
)
def test_an_error_is_a_sentence_that_says_what_to_do(
    plane: Plane, status: int, body: Any, kind: type[Exception], expected: list[str]
) -> None:
    plane.answers["/runs/get"] = (status, body)
    with pytest.raises(kind) as caught:
        client(plane).in_project("runs/get", {"run_name": "x"})
    for part in expected:
        assert part in str(caught.value)


def test_errors_are_never_retried(plane: Plane) -> None:
    plane.answers["/runs/get"] = steps((503, None), {"fine": True})
    with pytest.raises(Refused):
        client(plane).in_project("runs/get", {})
    assert len(plane.requests) == 1


def test_an_upload_is_a_form_whose_part_is_called_file(plane: Plane) -> None:
    plane.answers["/api/files/upload_archive"] = {"id": "1", "hash": "abc"}
    assert client(plane).upload("/api/files/upload_archive", "abc", b"\x00tar\r\n")["id"] == "1"
    assert b'name="file"; filename="abc"\r\n\r\n\x00tar\r\n\r\n--' in plane.requests[0].raw


NOT_JSON = [b'{"a": "\xff"}', b'["\\ud800"]', b'"\xed\xa0\x80"', b"[" * 100_000, b"9" * 5000]


@pytest.mark.parametrize("answer", NOT_JSON, ids=lambda value: value[:12])
def test_what_isnt_json_in_utf_8_is_no_answer(plane: Plane, answer: bytes) -> None:
    plane.answers["/runs/get"] = answer
    with pytest.raises(Refused, match="its response is not JSON in UTF-8"):
        client(plane).in_project("runs/get", {})
    plane.answers["/runs/get"] = b'["\\ud83d\\ude00", "\xc3\xa9"]'
    assert client(plane).in_project("runs/get", {}) == ["😀", "é"]


def test_a_key_that_an_older_server_lacks_is_no_crash(plane: Plane) -> None:
    plane.answers["/runs/list"] = b'[{"id": "1", "jobs": [{}]}]'
    (run,) = client(plane).in_project("runs/list")
    assert run["id"] == "1" and run.get("cost") is None
    for lacks in (run, run["jobs"][0]):
        with pytest.raises(Refused, match="lacks `cost`: its version and this command line's don't fit"):
            lacks["cost"]


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://[", "http://h:99999", "http://h:3 /x", "http://h\n"])
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(Refused, match="not a server's address"):
        Client(url, "t", "main")


@pytest.mark.parametrize("token", ["a\nb", "a\r", "€"])
def test_a_token_that_no_header_can_carry(token: str) -> None:
    with pytest.raises(Refused, match="token contains"):
        Client("http://h", token, "main")


def test_after_an_interrupted_request_the_next_one_gets_its_own_answer(plane: Plane) -> None:
    import signal
    import threading

    go = threading.Event()

    def slow(body: Any) -> str:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)  # its request waits for this answer
        go.wait(120)
        return "slow"

    def interrupt(signum: int, frame: Any) -> None:
        raise KeyboardInterrupt

    plane.answers |= {"/slow": slow, "/fast": "fast"}
    speaker = client(plane)
    speaker.in_project("fast")
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            speaker.in_project("slow")
    finally:
        signal.signal(signal.SIGALRM, before)
        go.set()
    assert speaker.in_project("fast") == "fast"
