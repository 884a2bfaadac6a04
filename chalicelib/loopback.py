"""Loopback addresses."""

from __future__ import annotations

from urllib.parse import urlsplit


def is_loopback(url: str) -> bool:
    """Whether requests to this URL stay on this machine."""
    import ipaddress  # slow to load, and most commands of the command line need none of it

    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
