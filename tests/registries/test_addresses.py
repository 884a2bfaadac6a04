"""A registry that somebody names is called only at public addresses."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.kit.rest import NoAnswer, RestAnswer, RestCall
from chalicelib.errors import ContainerFailed
from chalicelib.registries.addresses import NoPublicAddress, is_public, public_addresses, public_sender
from chalicelib.registries.client import LARGEST, Registries
from tests.backends.kubernetes.fake.transport import certificate

INTERNAL = (
    "127.0.0.1 10.0.0.1 172.16.5.4 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 255.255.255.255 ::1 :: "
    "fe80::1 fd00:ec2::254 ff02::1 fec0::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::127.0.0.1 2002:7f00:1:: 2002:a00:1:: "
    "64:ff9b::a9fe:a9fe 64:ff9b::7f00:1 64:ff9b:1::808:808"
)
PUBLIC = "8.8.8.8 140.82.112.33 2606:4700::6810:84e5 ::ffff:8.8.8.8 64:ff9b::808:808 2002:808:808::1"


def names(*addresses: str) -> Any:
    """A resolver for which every host has these."""
    calls: list[str] = []

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        calls.append(host)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(0, 0, 0, "", (each, port)) for each in addresses]

    resolve.calls = calls  # type: ignore[attr-defined]
    return resolve


def refuses(*_: Any, **__: Any) -> Any:
    raise AssertionError("nothing may be sent")


@pytest.mark.parametrize("address", INTERNAL.split())
def test_an_internal_address_however_it_is_written(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC.split())
def test_a_public_address(address: str) -> None:
    assert is_public(ip_address(address))


def test_only_public_addresses_of_a_host_are_kept() -> None:
    assert public_addresses("example.com", 443, names("10.0.0.1", "8.8.8.8", "fe80::1%eth0")) == ["8.8.8.8"]
    with pytest.raises(NoPublicAddress):
        public_addresses("a" * 64 + ".example.com", 443, socket.getaddrinfo)


@pytest.mark.parametrize("image", ["intranet:5000/team/app:1", "localhost:5000/team/app:1", "[::1]:5000/team/app:1"])
def test_hosts_that_dont_exist_and_internal_ones_look_alike_and_get_nothing(image: str) -> None:
    texts = set()
    for addresses in ((), ("10.0.0.1",), ("127.0.0.1", "::1"), ("::ffff:169.254.169.254",)):
        with pytest.raises(ContainerFailed) as refused:
            Registries(public_sender(LARGEST, (), names(*addresses), refuses)).command(image, None, "x86")
        texts.add(str(refused.value))
    (text,) = texts
    assert f"{image.partition('/')[0]} has no public address" in text


class Reached(Exception):
    """Where a connection was about to go."""


def reaches(address: tuple[str, int], *_: Any, **__: Any) -> Any:
    raise Reached(*address)


def test_an_internal_registry_is_called_once_an_admin_has_listed_it() -> None:
    listed = ("registry.lan:5000", "[::1]:5000", "Mirror.lan")

    def call(image: str, *addresses: str) -> None:
        Registries(public_sender(LARGEST, listed, names(*addresses), reaches), listing="config").command(
            image, None, "x86"
        )

    for image, address, port in (
        ("registry.lan:5000/team/app:1", "10.0.0.7", 5000),
        ("[::1]:5000/team/app:1", "::1", 5000),
        ("mirror.lan/team/app:1", "192.168.1.1", 443),
        ("ghcr.io/team/app:1", "8.8.8.8", 443),
    ):
        with pytest.raises(Reached) as reached:
            call(image, address)
        assert reached.value.args == (address, port)
    for image in ("registry.lan:5001/app", "registry.lan/app", "other.lan:5000/app", "localhost:5000/app"):
        texts = set()
        for addresses in ((), ("10.0.0.7",)):
            with pytest.raises(ContainerFailed, match="has no public address, and no admin has listed it") as refused:
                call(image, *addresses)
            texts.add(f"{refused.value} {refused.value.hint}")
        (text,) = texts
        assert f"`registries: [{image.partition('/')[0]}]` in config" in text


def test_the_place_that_gives_out_tokens_and_redirects_are_no_way_in() -> None:
    resolve = names("10.0.0.1")
    inner = public_sender(LARGEST, (), resolve, refuses)
    challenge = {"www-authenticate": 'Bearer realm="https://tokens.internal/token"'}
    for answer in (RestAnswer(401, challenge), RestAnswer(307, {"location": "https://blobs.internal/x"})):

        def send(call: RestCall, deadline: float, first: RestAnswer = answer) -> RestAnswer:
            return first if call.origin == "https://ghcr.io" else inner(call, deadline)

        with pytest.raises(ContainerFailed, match=r"(tokens|blobs)\.internal has no public address"):
            Registries(send).command("ghcr.io/team/app:1", None, "x86")
    assert resolve.calls == ["tokens.internal", "blobs.internal"]


def test_the_address_that_was_checked_is_the_one_that_is_called() -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.headers["Host"].encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nobody reads it."""

    called: list[Any] = []
    resolve = names("10.0.0.1", "8.8.8.8")
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request, daemon=True)
        thread.start()

        def connect(address: Any, timeout: Any, **_: Any) -> socket.socket:
            called.append(address)
            return socket.create_connection(server.server_address[:2], 120)

        sender = public_sender(LARGEST, (), resolve, connect)
        answer = sender(RestCall("GET", "http://registry.example.com", "/v2/"), 5)
        sender.close()
        thread.join()
    assert (answer.body, called) == (b"registry.example.com", [("8.8.8.8", 80)])
    assert resolve.calls == ["registry.example.com"], "a second answer could be another"


@pytest.mark.slow
def test_a_certificate_is_checked_for_the_name_of_the_host(tmp_path: Path) -> None:
    """And not for the address, which is all that the connection is made with."""
    pem = tmp_path / "pem"
    pem.write_bytes(b"".join(certificate()))
    context, named = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), list[str | None]()
    context.load_cert_chain(pem)
    context.sni_callback = lambda _, name, __: named.append(name)
    listening = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        accepted, _ = listening.accept()
        with accepted, suppress(OSError):  # the caller hangs up
            context.wrap_socket(accepted, server_side=True)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()

    def connect(*_: Any, **__: Any) -> socket.socket:
        return socket.create_connection(listening.getsockname(), 120)

    with pytest.raises(NoAnswer, match="certificate verify failed"):
        public_sender(LARGEST, (), names("8.8.8.8"), connect)(
            RestCall("GET", "https://registry.example.com", "/v2/"), 5
        )
    thread.join()
    listening.close()
    assert named == ["registry.example.com"]


def test_a_resolver_that_doesnt_answer_now_may_later() -> None:
    def resolve(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    with pytest.raises(NoAnswer):
        public_sender(LARGEST, (), resolve, refuses)(RestCall("GET", "https://ghcr.io", "/v2/"), 5)
