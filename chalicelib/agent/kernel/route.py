"""The way to the server: straight to its address, or through a head node that passes the bytes on as they are.

Where a machine can't reach the server itself, `via` in the agent's folder names the head node's `host:port`. The other
end is still the server that the URL names: TLS asks for its name and checks its certificate.

Where no authority would certify a name, as for a gateway on some host, a *pin* identifies the other end instead: the
SHA-256 of the one certificate that is good there. Whoever shows another hears nothing from us.
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

Via = Callable[[], str]  # the head node's address as it is now; empty: straight to the server


def straight() -> str:
    return ""


def connected(base: str, via: str, timeout: float, pin: str = "") -> socket.socket:
    """A connection to the server at `base`. Raises OSError, or ValueError if an address is none."""
    parts = urlsplit(base)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the server's address must look like https://host:port, not %r" % base)
    if pin and parts.scheme != "https":
        raise ValueError("a certificate is expected at %s, but only https shows one" % base)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host, port = _split(via) if via else (parts.hostname, port)
    given: Any = host.encode() if host.isascii() else host  # bytes spare the import of Python's codec for names
    made: socket.socket = socket.create_connection((given, port), timeout)
    try:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if pin:
            made = _anonymous().wrap_socket(made)  # without a name, for which it might show that name's certificate
            _check(made, pin)
        elif parts.scheme == "https":
            made = _trusting().wrap_socket(made, server_hostname=parts.hostname)
    except BaseException:
        made.close()
        raise
    return made


def _trusting() -> ssl.SSLContext:
    """TLS that takes certificates of the authorities that this machine knows, or that the agent brought."""
    context = ssl.create_default_context()
    if interpreter.authorities():
        context.load_verify_locations(interpreter.authorities())
    return context


def _anonymous() -> ssl.SSLContext:
    """TLS that takes any certificate, for whoever looks at it afterwards."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _check(made: ssl.SSLSocket, pin: str) -> None:
    shown = hashlib.sha256(made.getpeercert(binary_form=True) or b"").hexdigest()
    if not hmac.compare_digest(shown.encode(), pin.encode()):
        raise ConnectionError(
            "its certificate has the SHA-256 fingerprint %s, not %s as expected: something else listens there, or is "
            "in between" % (shown, pin)
        )


def _split(via: str) -> Tuple[str, int]:
    host, _, port = via.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError("the way to the server must look like host:port, not %r" % via)
    return host.strip("[]"), int(port)
