"""Through a head node an agent still speaks with the server that its URL names, and with no other."""

from __future__ import annotations

import contextlib
import datetime
import secrets
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from chalicelib.agent.gateway.nginx import pin_of
from chalicelib.agent.kernel import route
from chalicelib.agent.kernel.link import Link, LinkError
from chalicelib.agent.program.address import Address
from chalicelib.agent.streams import streams
from tests.agent.played_plane import Plane

NAME = "plane.test"  # nobody resolves it


def certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)]), datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, file = serialization.Encoding.PEM, folder / "plane.pem"
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(private + made.public_bytes(pem))
    return file


@pytest.fixture
def relayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Plane, list[str]]]:
    """A server with a certificate, and the names that were asked of it. Its own port stands for the head node's."""
    plane, names = Plane(), []
    file = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    context.sni_callback = lambda made, name, of: names.append(name)
    plane.server.socket = context.wrap_socket(plane.server.socket, server_side=True)
    with plane.serving():
        yield plane, names


def via(plane: Plane) -> str:
    return f"127.0.0.1:{plane.server.server_port}"


def test_the_servers_name_is_asked_for_and_its_certificate_checked(relayed: tuple[Plane, list[str]]) -> None:
    plane, names = relayed
    link = Link(lambda: via(plane))
    assert link.sync(f"https://{NAME}", {}, "secret", 1.0) == {}
    link.close()
    (_, _, path, headers, _) = plane.calls[0]
    assert (path, headers["Host"], names) == ("/agent/sync", NAME, [NAME])
    with pytest.raises(LinkError, match=r"https://another\.test: .*certificate"):
        link.sync("https://another.test", {}, "secret", 1.0)
    assert len(plane.calls) == 1, "it is told nothing"


def test_streams_take_the_same_way(relayed: tuple[Plane, list[str]]) -> None:
    plane, names = relayed
    with pytest.raises(ConnectionError, match="200"):  # it makes no WebSockets
        streams.dial_websocket(f"https://{NAME}", "/agent/streams/1", "ticket", via(plane))
    assert plane.calls[0][2] == "/agent/streams/1" and names == [NAME]


def test_a_pin_is_enough_and_no_name_is_named(relayed: tuple[Plane, list[str]], tmp_path: Path) -> None:
    plane, names = relayed
    at, pin = f"https://{via(plane)}", pin_of((tmp_path / "plane.pem").read_text())
    with pytest.raises(ConnectionError, match="200"):
        streams.dial_websocket(at, "/agent/streams/1", "ticket", pin=pin)
    assert plane.calls[0][2] == "/agent/streams/1" and names == [None]


def test_who_shows_another_certificate_hears_no_ticket(relayed: tuple[Plane, list[str]], tmp_path: Path) -> None:
    plane, _ = relayed
    pin = pin_of((tmp_path / "plane.pem").read_text())
    with pytest.raises(ConnectionError, match=f"fingerprint {pin}, not {'0' * 64} as expected"):
        streams.dial_websocket(f"https://{via(plane)}", "/agent/streams/1", "ticket", pin="0" * 64)
    with pytest.raises(ValueError, match="only https presents one"):
        streams.dial_websocket(f"http://{via(plane)}", "/agent/streams/1", "ticket", pin=pin)
    assert plane.calls == []


def test_the_way_is_read_from_a_file(tmp_path: Path) -> None:
    address = Address(str(tmp_path))
    assert address.via() == ""
    (tmp_path / "via").write_text("10.0.0.1:20001\n")
    assert address.via() == "10.0.0.1:20001"


@pytest.mark.parametrize("text", ["10.0.0.1", ":1", "host:", "host:port"])
def test_a_way_that_is_none_is_explained(text: str) -> None:
    with pytest.raises(ValueError, match=f"must look like host:port, not '{text}'"):
        route.connect("http://plane", text, 1.0)


@pytest.mark.parametrize(("name", "error"), [("a" * 64, OSError), ("ä" * 64, ValueError)])
def test_only_a_name_beyond_ascii_is_put_into_it(name: str, error: type[Exception]) -> None:
    """Which needs tables that an agent otherwise never loads; a resolver judges plain names."""
    with pytest.raises(error):
        route.connect(f"http://{name}", "", 1.0)


@pytest.mark.parametrize(("scheme", "port"), [("http", 80), ("https", 443)])
def test_where_no_port_is_named_it_is_that_of_the_scheme(scheme: str, port: int) -> None:
    address = ".".join(["127", *(str(secrets.randbelow(200) + 1) for _ in range(3))])  # one that no other test has
    try:
        listener = socket.create_server((address, port))
    except PermissionError:
        pytest.skip("this account can't have this port")

    def hang_up() -> None:
        listener.accept()[0].close()

    with listener:
        hangs_up = threading.Thread(target=hang_up, daemon=True)
        hangs_up.start()
        with contextlib.suppress(ssl.SSLError, ConnectionResetError):
            route.connect(f"{scheme}://{address}", "", 20.0).close()
        hangs_up.join(120)
        assert not hangs_up.is_alive()
