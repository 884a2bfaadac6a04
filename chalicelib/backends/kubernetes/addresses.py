"""Loopback and link-local addresses in a kubeconfig: those that only the control plane's own machine, or its link, has.

Where a kubeconfig has such an address, a global admin has written it. A name that leads there is refused when it is
connected to, because it may lead elsewhere a moment later.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit


def names_local_server(text: str, contexts: Collection[str]) -> bool:
    """Does one of these contexts lead there? Without any, the current one. What can't be read is refused elsewhere."""
    import yaml

    try:
        document = yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError:
        return False
    if not isinstance(document, Mapping):
        return False
    used = contexts or (str(document.get("current-context")),)
    names = {str(each.get("cluster")) for name in used for each in _entries(document, "context", name)}
    found = [each for name in names for each in _entries(document, "cluster", name)]
    return any(map(has_local_server, found))


def has_local_server(cluster: Mapping[str, Any]) -> bool:
    """Does this cluster of a kubeconfig have such an address?"""
    return any(_is_local(str(cluster.get(field) or "")) for field in ("server", "proxy-url"))


def _entries(document: Mapping[str, Any], kind: str, name: str) -> Iterator[Mapping[str, Any]]:
    listed = document.get(f"{kind}s")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, Mapping) and str(each.get("name")) == name and isinstance(each.get(kind), Mapping):
            yield each[kind]


def _is_local(url: str) -> bool:
    if "\\" in url:  # those who connect may read another host before it
        return True
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:  # nobody can call it
        return True
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _address(host)
    return address is not None and _is_of_this_machine(address)


def _is_of_this_machine(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return address.is_loopback or address.is_link_local or address.is_unspecified


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))  # also 127.1, as those who connect read it
    except OSError:
        pass
    try:
        found = ipaddress.IPv6Address(host)
    except ValueError:
        return None
    return found.ipv4_mapped or found


class LocalAddress(Exception):
    """A name leads to the control plane's own machine."""


def refuse_local_addresses(pools: Any) -> None:
    """Have the connections of urllib3's `pools` go to no such address. Nothing is sent before that is known."""
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
    from urllib3.connection import HTTPConnection, HTTPSConnection

    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _checked(super()._new_conn(), self.host)

    class Tls(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _checked(super()._new_conn(), self.host)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class TlsPool(HTTPSConnectionPool):
        ConnectionCls = Tls

    pools.pool_classes_by_scheme = {"http": PlainPool, "https": TlsPool}


def _checked(connection: socket.socket, host: str) -> socket.socket:
    address = _address(str(connection.getpeername()[0]).partition("%")[0])
    if address is None or _is_of_this_machine(address):
        connection.close()
        raise LocalAddress(host)
    return connection
