"""Calls to hosts that anybody may name, from where other hosts listen that only we reach: they go to public addresses,
whatever the host's name resolves to, and to the hosts that an admin has listed. A name is resolved once for each
connection, so it can't change in between."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import urlsplit

from chalicelib.backends.kit.rest import HttpSender

MOST = 3  # addresses of a host that are tried
# Networks whose addresses contain one of IPv4, and how many bits follow it.
_AROUND_IPV4 = (
    (IPv6Network("::ffff:0:0/96"), 0),
    (IPv6Network("64:ff9b::/96"), 0),
    (IPv6Network("2002::/16"), 80),
)

Resolve = Callable[..., Sequence[Any]]  # like socket.getaddrinfo
Connect = Callable[..., socket.socket]  # like urllib3's create_connection


class NoPublicAddress(Exception):
    """The host doesn't exist, or only in networks that aren't public. Callers can't tell which."""


def is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address):
        for network, following in _AROUND_IPV4:
            if address in network:
                return is_public(IPv4Address(int(address) >> following & 0xFFFFFFFF))
        if address.is_site_local or address.is_reserved:
            return False
    return address.is_global and not address.is_multicast


def public_addresses(host: str, port: int, resolve: Resolve, *, listed: bool = False) -> list[str]:
    """Raises NoPublicAddress if there is none, and OSError if it isn't known now. `listed`: any address will do."""
    try:
        found = resolve(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            raise
        found = []
    except UnicodeError:  # no name can be like this
        found = []
    known = dict.fromkeys(str(each[4][0]) for each in found)
    public = [each for each in known if listed or is_public(ip_address(each.partition("%")[0]))]
    if not public:
        raise NoPublicAddress(host)
    return public[:MOST]


def public_sender(
    largest: int,
    listed: Collection[str] = (),
    resolve: Resolve = socket.getaddrinfo,
    connect: Connect | None = None,
) -> HttpSender:
    """`listed`: hosts with ports that may have any address. A host's certificate is checked for its name, as always."""
    places = frozenset(map(place_of, listed))
    return HttpSender(largest=largest, pool=lambda size: _pool(size, places, resolve, connect))


def place_of(host: str) -> tuple[str, int]:
    """The host and the port that `HOST`, with the port of https, or `HOST:PORT` names."""
    parts = urlsplit(f"//{host}")
    return (parts.hostname or "").rstrip("."), parts.port or 443


def _pool(size: int, places: Collection[tuple[str, int]], resolve: Resolve, connect: Connect | None) -> Any:
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.util.connection import create_connection

    def connected(to: HTTPConnection) -> socket.socket:
        problem: OSError = OSError("no address")
        host = to.host.strip("[]")
        listed = (host.lower().rstrip("."), to.port) in places
        for address in public_addresses(host, to.port, resolve, listed=listed):
            try:
                return (connect or create_connection)(
                    (address, to.port), to.timeout, source_address=None, socket_options=to.socket_options
                )
            except OSError as error:
                problem = error
        raise problem

    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return connected(self)

    class Tls(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return connected(self)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class TlsPool(HTTPSConnectionPool):
        ConnectionCls = Tls

    pool = PoolManager(maxsize=size)
    pool.pool_classes_by_scheme = {"http": PlainPool, "https": TlsPool}
    return pool
