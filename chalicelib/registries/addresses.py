"""Calls to hosts that anybody may name, from where other hosts listen that only we reach: they go to public addresses,
whatever the host's name resolves to. A name is resolved once for each connection, so it can't change in between."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

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


def public_addresses(host: str, port: int, resolve: Resolve) -> list[str]:
    """Raises NoPublicAddress if there is none, and OSError if it isn't known now."""
    try:
        found = resolve(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            raise
        found = []
    except UnicodeError:  # no name can be like this
        found = []
    listed = dict.fromkeys(str(each[4][0]) for each in found)
    public = [each for each in listed if is_public(ip_address(each.partition("%")[0]))]
    if not public:
        raise NoPublicAddress(host)
    return public[:MOST]


def public_sender(largest: int, resolve: Resolve = socket.getaddrinfo, connect: Connect | None = None) -> HttpSender:
    """The host's certificate is checked for its name, as always."""
    return HttpSender(largest=largest, pool=lambda size: _pool(size, resolve, connect))


def _pool(size: int, resolve: Resolve, connect: Connect | None) -> Any:
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.util.connection import create_connection

    def connected(to: HTTPConnection) -> socket.socket:
        problem: OSError = OSError("no address")
        for address in public_addresses(to.host.strip("[]"), to.port, resolve):
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
