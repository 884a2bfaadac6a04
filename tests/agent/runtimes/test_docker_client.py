"""The client's half of the conversation with a Docker engine, over a real unix socket."""

from __future__ import annotations

import base64
import io
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.runtimes.docker_client import (
    DockerClient,
    DockerError,
    DockerUnreachable,
    message_of,
    registry_header,
    timestamp,
)
from tests.agent import docker_engine
from tests.agent.docker_engine import Engine


class Bored(Exception):
    pass


def bored() -> None:
    raise Bored


def patient() -> None:
    pass


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with docker_engine.running(tmp_path) as engine:
        yield engine


@pytest.fixture
def client(engine: Engine) -> DockerClient:
    return DockerClient(engine.socket)


def test_a_call_sends_its_query_and_its_body_as_json(engine: Engine, client: DockerClient) -> None:
    assert client.call("POST", "/containers/create", {"name": "a b", "n": 1}, {"Image": "ä"}, {"X-Mine": "1"}) == {
        "Id": "created"
    }
    request = engine.request("POST /containers/create")
    assert request.query == {"name": "a b", "n": "1"}
    assert request.body == b'{"Image": "\\u00e4"}'
    assert (request.headers["Content-Type"], request.headers["X-Mine"]) == ("application/json", "1")


def test_a_file_is_sent_as_it_is(engine: Engine, client: DockerClient) -> None:
    engine.container("c")
    headers = {"Content-Type": "application/x-tar", "Content-Length": "5"}
    assert client.call("PUT", "/containers/c/archive", {"path": "/"}, io.BytesIO(b"\x00tar\xff"), headers) is None
    request = engine.request("PUT")
    assert (request.body, request.headers["Content-Type"]) == (b"\x00tar\xff", "application/x-tar")


def test_no_query_leaves_the_path_alone(engine: Engine, client: DockerClient) -> None:
    client.call("GET", "/_ping")
    assert engine.calls() == ["GET /_ping"]


@pytest.mark.parametrize(
    ("fault", "want"),
    [
        ((409, '{"message": "name in use"}'), (409, "name in use")),
        ((500, " plain words \n"), (500, "plain words")),
        ((400, '{"message": "exactly four hundred"}'), (400, "exactly four hundred")),
    ],
)
def test_a_refusal_is_told_in_the_engines_words(
    engine: Engine, client: DockerClient, fault: tuple[int, str], want: tuple[int, str]
) -> None:
    engine.faults["GET /info"] = fault
    with pytest.raises(DockerError) as caught:
        client.call("GET", "/info")
    assert (caught.value.status, caught.value.message, str(caught.value)) == (*want, want[1])
    assert not isinstance(caught.value, DockerUnreachable)


def test_words_of_an_answer_of_another_shape() -> None:
    assert message_of('["message"]') == '["message"]'
    assert message_of('{"error": 1}') == '{"error": 1}'
    assert message_of("3") == "3"


def test_an_engine_that_hangs_up_is_away(engine: Engine, client: DockerClient) -> None:
    engine.faults["GET /info"] = (0, "")
    with pytest.raises(DockerUnreachable, match=engine.socket) as caught:
        client.call("GET", "/info")
    assert caught.value.status == 0
    engine.faults["POST /containers/c/attach"] = (0, "")
    with pytest.raises(DockerUnreachable, match="closed the connection"):
        client.stream("POST", "/containers/c/attach", {})


def test_an_answer_that_breaks_off_is_no_answer(engine: Engine, client: DockerClient) -> None:
    engine.cut_short = "GET /info"
    with pytest.raises(DockerUnreachable):
        client.call("GET", "/info")


def test_no_socket_is_away(tmp_path: Path) -> None:
    client = DockerClient(str(tmp_path / "none.sock"))
    with pytest.raises(DockerUnreachable, match=r"none\.sock"):
        client.call("GET", "/info")
    with pytest.raises(DockerUnreachable, match=r"none\.sock"):
        client.stream("GET", "/info", {})


def test_an_engine_that_never_answers_is_away(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        with pytest.raises(DockerUnreachable, match="timed out"):
            DockerClient(str(tmp_path / "silent")).call("GET", "/_ping", timeout=0.01)


def test_ping_says_why_an_engine_cant_be_used(engine: Engine, client: DockerClient, tmp_path: Path) -> None:
    assert client.ping() == ""
    engine.faults["GET /_ping"] = (500, '{"message": "still starting"}')
    assert client.ping().endswith("doesn't answer: still starting")
    missing = str(tmp_path / "none.sock")
    assert DockerClient(missing).ping() == f"there is no Docker engine at {missing}"


def test_a_socket_whose_path_is_too_long_for_an_address(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    with docker_engine.running(tmp_path) as engine:
        os.link(engine.socket, deep / "d.sock")
        assert DockerClient(str(deep / "d.sock")).ping() == ""
        opened = [each.resolve() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
        assert deep not in opened, "the folder was left open"


def test_what_isnt_there_is_none_and_a_failure_isnt(engine: Engine, client: DockerClient) -> None:
    engine.container("here", status="running")
    engine.images["host:5000/team/app:1"] = {"Id": "sha256:1"}
    found = client.container("here")
    assert found is not None and found["State"]["Running"] is True
    assert client.container("gone") is None
    assert client.image("host:5000/team/app:1") == {"Id": "sha256:1"}
    assert client.image("app") is None
    engine.faults["GET /images/app/json"] = (500, "disk")
    with pytest.raises(DockerError, match="disk"):
        client.image("app")


def test_a_strange_answer_finds_nothing(engine: Engine, client: DockerClient) -> None:
    engine.faults["GET /containers/c/json"] = (200, '{"message": "x"}')
    assert client.container("c") == {"message": "x"}
    engine.faults["GET /containers/c/json"] = (200, "text")
    assert client.container("c") is None


def test_remove_takes_all_and_doesnt_mind_what_is_gone(engine: Engine, client: DockerClient) -> None:
    engine.container("c")
    client.remove("c")
    assert engine.containers == {}
    assert engine.request("DELETE").query == {"force": "1", "v": "1"}
    client.remove("c")
    engine.faults["DELETE /containers/c"] = (409, "removal is in progress")
    client.remove("c")
    engine.faults["DELETE /containers/c"] = (500, "busy")
    with pytest.raises(DockerError, match="busy"):
        client.remove("c")


def test_labelled_asks_for_all_even_those_that_ended(engine: Engine, client: DockerClient) -> None:
    engine.container("mine", body={"Labels": {"owner": "me"}})
    engine.container("other", body={"Labels": {"owner": "you"}})
    assert [found["Id"] for found in client.labelled("owner=me")] == ["mine"]
    assert engine.request("GET /containers/json").query["all"] == "1"
    engine.faults["GET /containers/json"] = (200, "text")
    assert client.labelled("owner=me") == []


def test_a_stream_gives_what_came_with_its_head_and_goes_on(engine: Engine, client: DockerClient) -> None:
    container = engine.container("c", status="running", output=b"first ")
    sock, came = client.stream("GET", "/containers/c/logs", {"follow": 1}, {"X-Mine": "1"})
    with sock:
        assert came == b"first "
        container.says(b"second")
        assert sock.recv(100) == b"second"
        container.exits(0)
        assert sock.recv(100) == b""
    request = engine.request("GET /containers/c/logs")
    assert (request.query, request.headers["X-Mine"]) == ({"follow": "1"}, "1")
    assert (request.headers["Host"], request.headers["Content-Length"]) == ("docker", "0")


def test_a_stream_that_is_refused_says_why(engine: Engine, client: DockerClient) -> None:
    engine.faults["GET /containers/c/logs"] = (409, '{"message": "marked for removal"}')
    with pytest.raises(DockerError) as caught:
        client.stream("GET", "/containers/c/logs", {})
    assert (caught.value.status, caught.value.message) == (409, "marked for removal")


def test_lines_of_a_stream(engine: Engine, client: DockerClient) -> None:
    engine.pulls = [{"n": number, "pad": "x" * 30_000} for number in range(5)]
    headers = {"X-Registry-Auth": "a"}
    found = list(client.lines("POST", "/images/create", {"fromImage": "app"}, headers, patient))
    assert [line["n"] for line in found] == [0, 1, 2, 3, 4]
    request = engine.request("POST /images/create")
    assert (request.query, request.headers["X-Registry-Auth"]) == ({"fromImage": "app"}, "a")


def test_whoever_waits_for_a_silent_stream_may_leave_it(engine: Engine, client: DockerClient) -> None:
    engine.container("c", status="running", output=b'{"n": 1}\n\n{"n": 2}\n{"n"')
    lines = client.lines("GET", "/containers/c/logs", {}, {}, bored)
    assert [next(lines), next(lines)] == [{"n": 1}, {"n": 2}]
    with pytest.raises(Bored):
        next(lines)


def test_credentials_go_to_the_registry_and_nowhere_else() -> None:
    header = registry_header({"username": "puller", "password": "pä/ss"})["X-Registry-Auth"]
    assert base64.urlsafe_b64decode(header).decode() == '{"username": "puller", "password": "p\\u00e4/ss"}'
    assert base64.urlsafe_b64decode(registry_header({"username": None})["X-Registry-Auth"]) == (
        b'{"username": "", "password": ""}'
    )
    assert registry_header(None) == {}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("2026-11-22T09:00:00.123456789Z", 1795338000.123456789),
        ("2026-11-22T11:30:00+02:30", 1795338000.0),
        ("2026-11-22T06:30:00.5-02:30", 1795338000.5),
        ("0001-01-01", 0.0),
        ("", 0.0),
    ],
)
def test_times_as_the_engine_writes_them(text: str, want: float) -> None:
    assert timestamp(text) == pytest.approx(want, abs=1e-6)
