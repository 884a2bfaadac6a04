"""Addresses in a kubeconfig that only the control plane's own machine, or its link, has."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit


def is_near(text: str, contexts: Collection[str]) -> bool:
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
    return any(_is_near(str(each.get(field) or "")) for each in found for field in ("server", "proxy-url"))


def _entries(document: Mapping[str, Any], kind: str, name: str) -> Iterator[Mapping[str, Any]]:
    listed = document.get(f"{kind}s")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, Mapping) and str(each.get("name")) == name and isinstance(each.get(kind), Mapping):
            yield each[kind]


def _is_near(url: str) -> bool:
    if "\\" in url:  # those who connect may read another host before it
        return True
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:  # nobody can call it
        return True
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _address(host)
    return address is not None and (address.is_loopback or address.is_link_local or address.is_unspecified)


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
