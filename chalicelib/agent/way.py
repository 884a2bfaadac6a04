"""The way to the server: straight to its address, or through a head node that passes the bytes on as they are.

Where a machine can't reach the server itself, `via` in the agent's folder names the head node's `host:port`. The other
end is still the server that the URL names: TLS asks for its name and checks its certificate.
"""

from __future__ import annotations

import socket
import ssl
from typing import Callable, Tuple
from urllib.parse import urlsplit

Via = Callable[[], str]  # the head node's address as it is now; empty: straight to the server


def straight() -> str:
    return ""


def connected(base: str, via: str, timeout: float) -> socket.socket:
    """A connection to the server at `base`. Raises OSError, or ValueError if an address is none."""
    parts = urlsplit(base)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the server's address must look like https://host:port, not %r" % base)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    made: socket.socket = socket.create_connection(_split(via) if via else (parts.hostname, port), timeout)
    try:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if parts.scheme == "https":
            made = ssl.create_default_context().wrap_socket(made, server_hostname=parts.hostname)
    except BaseException:
        made.close()
        raise
    return made


def _split(via: str) -> Tuple[str, int]:
    host, _, port = via.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError("the way to the server must look like host:port, not %r" % via)
    return host.strip("[]"), int(port)
