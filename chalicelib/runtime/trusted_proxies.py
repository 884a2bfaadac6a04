"""Proxies before this server whose word about their clients is believed; nobody else's is.

Each proxy adds the address of its own client to the end of `X-Forwarded-For`. So the header is read from its end, for
as long as the address that made the next entry belongs to a trusted proxy: the first that doesn't is the client.
Whatever is before it, the client may have invented.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from chalicelib.errors import Invalid

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Header = tuple[bytes, bytes]

FORWARDED_FOR, FORWARDED_PROTO = b"x-forwarded-for", b"x-forwarded-proto"
_WITH_PORT = re.compile(r"\[([^\]]+)\](?::\d+)?|([\d.]+):\d+")  # as some proxies write an address


class Sender(NamedTuple):
    address: str
    scheme: str
    headers: list[Header]  # of its request; `X-Forwarded-For` has only what the client sent itself


@dataclass(frozen=True)
class TrustedProxies:
    networks: tuple[Network, ...] = ()

    def __contains__(self, address: object) -> bool:
        return bool(self.networks) and _within(str(address), self.networks)

    def sender(self, peer: str, scheme: str, headers: Sequence[Header]) -> Sender:
        """Who sent a request that came from `peer`, by these headers."""
        if peer not in self:
            return Sender(peer, scheme, list(headers))
        entries = [entry for name, value in headers if name == FORWARDED_FOR for entry in value.split(b",")]
        client = peer
        while entries and client in self and (before := _canonical(entries[-1].decode("latin-1"))):
            entries.pop()
            client = before
        kept = [each for each in headers if each[0] != FORWARDED_FOR]
        if claimed := b",".join(entries).strip():
            kept.append((FORWARDED_FOR, claimed))
        schemes = [value for name, value in headers if name == FORWARDED_PROTO]
        told = schemes[-1].rpartition(b",")[2].strip().lower() if schemes else b""
        return Sender(client, told.decode() if told in (b"http", b"https") else scheme, kept)


def read(text: str, name: str) -> TrustedProxies:
    """The proxies of a setting: addresses and networks, with commas between them. Raises Invalid."""
    try:
        return TrustedProxies(tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip()))
    except ValueError as wrong:
        raise Invalid(
            f"{name} is {text[:200]!r}: {wrong}.",
            hint="Set it to the addresses or networks of your proxies, as in 10.0.0.5,192.168.7.0/24.",
        ) from wrong


def _canonical(text: str) -> str:
    """An entry's address; empty if it has none, for instance because it says `unknown`."""
    found = _WITH_PORT.fullmatch(text.strip())
    try:
        return str(ipaddress.ip_address((found[1] or found[2]) if found else text.strip()))
    except ValueError:
        return ""


@lru_cache(maxsize=4096)
def _within(address: str, networks: tuple[Network, ...]) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped:
        found = found.ipv4_mapped
    return any(found in network for network in networks)
