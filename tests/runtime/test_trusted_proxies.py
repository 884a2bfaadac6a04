"""Whose word about a request's client is believed, and which part of it."""

from __future__ import annotations

import pytest

from chalicelib.errors import Invalid
from chalicelib.runtime.trusted_proxies import FORWARDED_FOR, TrustedProxies, read

PROXIES = read("10.0.0.0/24, 2001:db8::7", "--trusted-proxies")


def sender(
    peer: str, *forwarded: str, proxies: TrustedProxies = PROXIES, proto: str = ""
) -> tuple[str, str, list[str]]:
    headers = [(b"host", b"h"), *((FORWARDED_FOR, each.encode()) for each in forwarded)]
    headers += [(b"x-forwarded-proto", proto.encode())] if proto else []
    found = proxies.sender(peer, "http", headers)
    assert (b"host", b"h") in found.headers
    return found.address, found.scheme, [value.decode() for name, value in found.headers if name == FORWARDED_FOR]


@pytest.mark.parametrize(
    ("peer", "forwarded", "address", "left"),
    [
        ("10.0.0.5", ["203.0.113.9"], "203.0.113.9", []),
        ("10.0.0.5", ["1.1.1.1, 203.0.113.9"], "203.0.113.9", ["1.1.1.1"]),  # the client says so, and it may lie
        ("10.0.0.5", ["1.1.1.1", "203.0.113.9, 10.0.0.8"], "203.0.113.9", ["1.1.1.1"]),  # two proxies
        ("2001:db8::7", ["2001:db8::99"], "2001:db8::99", []),
        ("::ffff:10.0.0.5", ["203.0.113.9"], "203.0.113.9", []),  # on a socket for both families
        ("10.0.0.5", ["203.0.113.9:4711"], "203.0.113.9", []),
        ("10.0.0.5", ["[2001:db8::99]:4711"], "2001:db8::99", []),
        ("10.0.0.5", ["unknown"], "10.0.0.5", ["unknown"]),
        ("10.0.0.5", [], "10.0.0.5", []),
        ("10.0.0.5", ["10.0.0.8"], "10.0.0.8", []),  # a proxy asks for itself
    ],
)
def test_the_client_is_the_last_that_isnt_a_trusted_proxy(
    peer: str, forwarded: list[str], address: str, left: list[str]
) -> None:
    assert sender(peer, *forwarded) == (address, "http", left)


def test_nobody_else_is_believed() -> None:
    assert sender("203.0.113.9", "10.0.0.5", proto="https") == ("203.0.113.9", "http", ["10.0.0.5"])
    assert sender("10.0.0.5", "1.1.1.1", proto="https", proxies=TrustedProxies()) == ("10.0.0.5", "http", ["1.1.1.1"])
    assert "" not in PROXIES and "not an address" not in PROXIES and "10.0.1.1" not in PROXIES


@pytest.mark.parametrize(
    ("told", "scheme"), [("https", "https"), ("http, https", "https"), ("ftp", "http"), ("", "http")]
)
def test_a_proxy_says_how_its_client_came(told: str, scheme: str) -> None:
    assert sender("10.0.0.5", "203.0.113.9", proto=told)[1] == scheme


@pytest.mark.parametrize("text", ["proxy.example.com", "10.0.0.5/24", "10.0.0.0/33"])
def test_what_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="--trusted-proxies is") as caught:
        read(text, "--trusted-proxies")
    assert "10.0.0.5,192.168.7.0/24" in caught.value.hint


def test_an_empty_setting_trusts_nobody() -> None:
    assert read("", "--trusted-proxies") == TrustedProxies()
