"""Which address this machine, its user and remote machines are given, and what the start says about it."""

from __future__ import annotations

import socket

import pytest

from chalicelib.errors import Refused
from chalicelib.runtime.addresses import Addresses, addresses_of, checked_url, listen, secure_addresses


def found(host: str, public_url: str | None = None) -> tuple[Addresses, int]:
    with listen(host, 0) as listener:
        return addresses_of(listener, public_url), listener.getsockname()[1]


def test_on_loopback_there_is_one_address_and_nothing_to_say() -> None:
    addresses, port = found("127.0.0.1")
    assert addresses == Addresses(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port}", "")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_public_url_is_for_remote_machines_and_never_for_this_one(host: str) -> None:
    addresses, port = found(host, "https://dstack.example.com")
    assert addresses.local == f"http://127.0.0.1:{port}"
    assert addresses.remote == "https://dstack.example.com"
    assert addresses.note == "Remote machines will be given https://dstack.example.com"


def test_on_every_address_the_start_says_which_one_others_are_given() -> None:
    addresses, port = found("0.0.0.0")
    assert addresses.local == f"http://127.0.0.1:{port}"
    if addresses.remote == addresses.local:  # a machine without a network
        assert "can't reach this server" in addresses.note
    else:
        assert f"every address of this machine; remote machines will be given {addresses.remote} " in addresses.note
        assert addresses.remote.endswith(f":{port}") and "//0.0.0.0" not in addresses.remote
        with socket.socket() as own:  # it is one of this machine's own
            own.bind((addresses.remote.removeprefix("http://").rpartition(":")[0], 0))
    assert "--public-url" in addresses.note


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("https://dstack.example.com", "https://dstack.example.com"),
        ("HTTPS://Dstack.Example.com/", "https://dstack.example.com"),
        ("http://10.0.0.5:3000", "http://10.0.0.5:3000"),
        ("http://[2001:db8::5]:3000/", "http://[2001:db8::5]:3000"),
        ("http://control_plane:3000", "http://control_plane:3000"),
        ("http://localhost", "http://localhost"),
    ],
)
def test_a_url_is_scheme_host_and_port(text: str, normalized: str) -> None:
    assert checked_url(text) == normalized
    assert checked_url(normalized) == normalized


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("dstack.example.com", "doesn't start with http"),
        ("dstack.example.com:3000", "doesn't start with http"),
        ("ftp://x", "doesn't start with http"),
        ("https://", "has no host"),
        ("https://:3000", "has no host"),
        ("https://x/dstack", "after the host"),
        ("https://x?a=b", "after the host"),
        ("https://x/?", "after the host"),
        ("https://x#", "after the host"),
        ("https://me@x", "user name or a password"),
        ("https://me:secret@x", "user name or a password"),
        ("http://x:99999", "n.t a URL"),
        ("http://x:port", "n.t a URL"),
        ("http://[x", "n.t a URL"),
        ("http://a b", "neither a valid name nor an address"),
        ("http://a\nb", "neither a valid name nor an address"),
        ("http://$(id)", "neither a valid name nor an address"),
        ("http://-x", "neither a valid name nor an address"),
        ("http://ö.example", "neither a valid name nor an address"),
        ("http://[fe80::1%25eth0]", "neither a valid name nor an address"),
        ("http://0.0.0.0:3000", "to listen on"),
        ("http://[::]:3000", "to listen on"),
        ("http://x:0", "to listen on"),
    ],
)
def test_what_leads_nowhere_is_refused_with_the_reason(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        checked_url(text)


@pytest.mark.parametrize(
    ("remote", "warned"),
    [
        ("http://127.0.0.1:3000", False),
        ("http://[::1]:3000", False),
        ("http://localhost:3000", False),
        ("https://dstack.example.com", False),
        ("http://dstack.example.com", True),
        ("http://10.0.0.5:3000", True),
    ],
)
def test_plain_http_beyond_this_machine_is_warned_of(remote: str, warned: bool) -> None:
    warning = Addresses("http://127.0.0.1:3000", remote).warning
    assert ("plain HTTP" in warning and remote in warning and "--public-url" in warning) is warned


def test_what_a_stream_says_goes_out_at_once() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def secure(public_url: str | None, name: str) -> tuple[Addresses, int, int]:
    with listen("127.0.0.1", 0) as listener, listen("127.0.0.1", 0) as here:
        ports = listener.getsockname()[1], here.getsockname()[1]
        return secure_addresses(listener, here, public_url, name), *ports


def test_with_a_certificate_only_this_machines_agents_go_without_tls() -> None:
    addresses, port, here = secure(None, "dstack.example.com")
    assert addresses.local == f"http://127.0.0.1:{here}"
    assert addresses.remote == addresses.shown == f"https://dstack.example.com:{port}" and not addresses.warning
    addresses, _, _ = secure("https://gpu.example.com", "dstack.example.com")
    assert addresses.remote == addresses.shown == "https://gpu.example.com"


def test_a_certificate_without_a_name_and_an_address_without_https_are_refused() -> None:
    with pytest.raises(Refused, match="names no host"):
        secure(None, "")
    with pytest.raises(Refused, match="answers only to https"):
        secure("http://gpu.example.com", "gpu.example.com")
