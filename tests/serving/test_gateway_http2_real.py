"""HTTP/2 towards a gateway's clients, spoken by curl: what is passed on, what is bounded, and what is refused."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from chalicelib.domain.serving import Served, ServedModel
from tests.serving import http2
from tests.serving.door import TOKEN, Replica, bearer, service
from tests.serving.nginx_door import NginxDoor, installed

BODY = 64 * 2**20  # bytes that a service takes


@dataclass
class CurlAnswer:
    version: str
    status: int
    head: str
    body: bytes


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NginxDoor]:
    installed()
    door = NginxDoor(tmp_path_factory.mktemp("gateway"), tls=True)
    try:
        yield door
    finally:
        door.stop()


@pytest.fixture(scope="module")
def replica() -> Iterator[Replica]:
    made = Replica("a")
    yield made
    made.stop()


@pytest.fixture
def served(gateway: NginxDoor, replica: Replica) -> Served:
    gateway.empty()
    made = service([replica])
    gateway.serve(made)
    return made


def curl(gateway: NginxDoor, host: str, target: str, *flags: str, sent: bytes = b"") -> CurlAnswer:
    port = gateway.secure[1]
    where = ["--http2", "--resolve", f"{host}:{port}:127.0.0.1", f"https://{host}:{port}{target}"]
    command = ["curl", "-skg", "--path-as-is", "-m", "20", "-D", "/dev/stderr", "-w", "\n%{http_version} %{http_code}"]
    done = subprocess.run([*command, *flags, *where], input=sent, capture_output=True, timeout=120, check=False)
    body, _, last = done.stdout.rpartition(b"\n")
    version, status = last.decode().split()
    return CurlAnswer(version, int(status), done.stderr.decode().lower(), body)


def ask(gateway: NginxDoor, served: Served, target: str, *flags: str, sent: bytes = b"") -> CurlAnswer:
    return curl(gateway, gateway.host_of(served), target, *flags, sent=sent)


def without_length(method: str = "POST") -> tuple[str, ...]:
    return "-T", "-", "-X", method


@pytest.mark.parametrize("sent", [b"", b"x" * 1000, b"x" * (3 * 2**20)])
@pytest.mark.parametrize("announced", [True, False])
def test_bodies_pass_whether_their_length_is_announced_or_not(
    gateway: NginxDoor, served: Served, sent: bytes, announced: bool
) -> None:
    answer = ask(gateway, served, "/echo", *(("--data-binary", "@-") if announced else without_length()), sent=sent)
    assert (answer.version, answer.status) == ("2", 200) and b'"length": %d,' % len(sent) in answer.body


def test_events_and_head_pass(gateway: NginxDoor, served: Served) -> None:
    assert b"[DONE]" in ask(gateway, served, "/stream?n=3&gap=0.01").body
    assert ask(gateway, served, "/echo", "-I").status == 200


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_large_is_refused(gateway: NginxDoor, served: Served, announced: bool) -> None:
    flags = ("--data-binary", "@-") if announced else without_length()
    assert ask(gateway, served, "/echo", *flags, sent=bytes(BODY + 1)).status == 413


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "DELETE"])
def test_nothing_large_comes_unannounced_where_no_body_is_expected(
    gateway: NginxDoor, served: Served, method: str
) -> None:
    """It would be kept on disk."""
    assert ask(gateway, served, "/echo", *without_length(method), sent=bytes(2 * 2**20)).status == 413
    assert ask(gateway, served, "/echo", "-X", "DELETE").status == 200


def test_compressed_headers_count_as_what_they_say(gateway: NginxDoor, served: Served) -> None:
    headers = [flag for number in range(5) for flag in ("-H", f"x-{number}: {'a' * 4000}")]
    assert ask(gateway, served, "/echo", *headers[:6]).status == 200
    assert ask(gateway, served, "/echo", *headers).status == 431


def test_heads_are_as_strict_as_those_of_http_1(gateway: NginxDoor, served: Served) -> None:
    def status(*headers: tuple[bytes, bytes]) -> int:
        return http2.status_of(gateway.secure, gateway.host_of(served), "/echo", headers)

    many = [(b"x-%d" % number, b"") for number in range(128)]
    assert status() == status(*many[:127]) == status((b"x-a", b"a\tb \xe4"), (b"x-b", b"")) == 200
    assert status(*many) == 400
    for odd in ((b"x-a", b"a\x01b"), (b"x-a", b"\x7f"), (b"x-(a", b"1"), (b"x-\xe4", b"1")):
        assert status(odd) == 400, odd


def test_nothing_becomes_a_websocket(gateway: NginxDoor, served: Served, replica: Replica) -> None:
    """Nginx would pass on the frames of all that is asked over this connection."""
    upgrade = [(b"connection", b"Upgrade"), (b"upgrade", b"websocket"), (b"sec-websocket-key", b"dGhlIHNhbXBsZQ==")]
    before = replica.seen()["came"].get("ws", 0)
    assert http2.status_of(gateway.secure, gateway.host_of(served), "/ws", upgrade) == 426
    assert replica.seen()["came"].get("ws", 0) == before
    unasked = http2.status_of(gateway.secure, gateway.host_of(served), "/odd?how=switch", upgrade)
    assert unasked == http2.RESET_BY_THEM


def test_tokens_and_models_are_as_ever(gateway: NginxDoor, replica: Replica) -> None:
    gateway.empty()
    closed = service([replica], auth=True, model=ServedModel(name="m"))
    gateway.serve(closed)
    gateway.allow(TOKEN, "main")
    token = ("-H", ": ".join(bearer(TOKEN)))
    assert ask(gateway, closed, "/echo").status == 403
    assert ask(gateway, closed, "/echo", *token).status == 200
    host, path = gateway.models_of("main")
    for flags in (("-d", "@-"), without_length()):
        answer = curl(gateway, host, f"{path}v1/chat/completions", *token, *flags, sent=b'{"model": "m"}')
        assert (answer.version, answer.status) == ("2", 200)


@pytest.mark.parametrize("kind", ["application/grpc", "application/grpc+proto"])
def test_grpc_is_refused_in_its_own_words(gateway: NginxDoor, served: Served, replica: Replica, kind: str) -> None:
    before: dict[str, Any] = replica.seen()["came"]
    flags = ("-H", f"content-type: {kind}", "-H", "te: trailers", "--data-binary", "@-")
    answer = ask(gateway, served, "/helloworld.Greeter/SayHello", *flags, sent=bytes(5))
    assert (answer.version, answer.status, answer.body) == ("2", 200, b"")
    assert "content-type: application/grpc\r" in answer.head and "grpc-status: 12\r" in answer.head
    assert "grpc-message: gateways pass on http, not grpc" in answer.head
    assert replica.seen()["came"] == before


def test_grpc_web_is_http(gateway: NginxDoor, served: Served) -> None:
    assert ask(gateway, served, "/echo", "-H", "content-type: application/grpc-web+proto", "-d", "x").status == 200
