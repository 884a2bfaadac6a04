"""The route to the server: directly to its address, or through a head node that passes the bytes on as they are.

Where a machine can't reach the server itself, `via` in the agent's folder names the head node's `host:port`. The other
end is still the server that the URL names: TLS requests its name and checks its certificate.

Where no authority would certify a name, as for a gateway on a host that its owner provides, a *pin* identifies the
other end instead: the SHA-256 of the one acceptable certificate. A server that presents another gets no data.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Callable, Tuple
from urllib.parse import urlsplit

from . import interpreter
from .lazy import LazyModule

if TYPE_CHECKING:
    import hashlib
    import hmac
    import ssl
else:
    hashlib = LazyModule("hashlib")
    hmac = LazyModule("hmac")
    ssl = LazyModule("ssl")

Via = Callable[[], str]  # the head node's current address; empty for a direct connection


def direct() -> str:
    return ""


def connect(base: str, via: str, timeout: float, pin: str = "") -> socket.socket:
    """A connection to the server at `base`. Raises OSError, or ValueError for a malformed address."""
    parts = urlsplit(base)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the server's address must look like https://host:port, not %r" % base)
    if pin and parts.scheme != "https":
        raise ValueError("the certificate of %s is pinned, but only https presents one" % base)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host, port = _split(via) if via else (parts.hostname, port)
    target: Any = host.encode() if host.isascii() else host  # bytes: a str would import Python's codec for host names
    sock: socket.socket = socket.create_connection((target, port), timeout)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if pin:
            sock = _anonymous().wrap_socket(sock)  # with a server name, it might present that name's certificate
            _check(sock, pin)
        elif parts.scheme == "https":
            sock = _trusting().wrap_socket(sock, server_hostname=parts.hostname)
    except BaseException:
        sock.close()
        raise
    return sock


def _trusting() -> ssl.SSLContext:
    """TLS that takes certificates of the authorities that this machine knows, or that the agent brought."""
    context = ssl.create_default_context()
    if interpreter.authorities():
        context.load_verify_locations(interpreter.authorities())
    return context


def _anonymous() -> ssl.SSLContext:
    """A TLS context that accepts any certificate, which the caller then checks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _check(sock: ssl.SSLSocket, pin: str) -> None:
    fingerprint = hashlib.sha256(sock.getpeercert(binary_form=True) or b"").hexdigest()
    if not hmac.compare_digest(fingerprint.encode(), pin.encode()):
        raise ConnectionError(
            "its certificate has the SHA-256 fingerprint %s, not %s as expected: something else listens there, or is "
            "in between" % (fingerprint, pin)
        )


def _split(via: str) -> Tuple[str, int]:
    host, _, port = via.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError("the address of the head node must look like host:port, not %r" % via)
    return host.strip("[]"), int(port)
