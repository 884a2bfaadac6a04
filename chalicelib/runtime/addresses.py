"""Where the embedded server listens, and the addresses that reach it: locally, and from other machines.

A bought machine dials out to the server, so it needs an address that reaches the server from elsewhere. Only the
operator knows it (`--public-url`); without it, the best guess is the address that this machine sends from.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from chalicelib.errors import Refused
from chalicelib.loopback import is_loopback

_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
HTTPS_PORT = 443
_ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}  # reserved for documentation, nobody's


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited by accepted connections
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise Refused(
                f"Port {port} on {host} is in use by another program.",
                hint="Choose another with --port, or --port 0 for any.",
            ) from error
        raise Refused(f"Can't listen on {host}:{port}: {error.strerror}.") from error
    return listener


@dataclass(frozen=True)
class Addresses:
    local: str  # for this machine's own agents
    remote: str  # for machines elsewhere
    note: str = ""  # printed at start, about `remote`
    secure: str = ""  # with TLS: the address by which its certificate knows it

    @property
    def shown(self) -> str:
        """For the users of this machine."""
        return self.secure or self.local

    @property
    def warning(self) -> str:
        """A warning if traffic could be read in transit; empty if none leaves this machine."""
        if urlsplit(self.remote).scheme == "https" or is_loopback(self.remote):
            return ""
        return (
            f"Warning: {self.remote} is plain HTTP: tokens, secrets and logs can be read and changed on the way. "
            "Put HTTPS before it and name that with --public-url"
        )


def local_end(listener: socket.socket) -> tuple[str, int]:
    """The address and port at which this machine itself connects."""
    host, port = listener.getsockname()[:2]
    bound = ipaddress.ip_address(host.partition("%")[0])
    if not bound.is_unspecified:
        return host, port
    return "127.0.0.1" if bound.version == 4 else "::1", port


def secure_addresses(listener: socket.socket, local: socket.socket, public_url: str | None, name: str) -> Addresses:
    """Those of a server with TLS: this machine's agents have a listener of their own, `local`, because the certificate
    isn't for `localhost`. `name`: the host that the certificate is for."""
    here = _url("http", *local_end(local))
    port = listener.getsockname()[1]
    if public_url is None and not name:
        raise Refused(
            "The certificate names no host by which machines could reach this server.",
            hint="Say which of its names they use, as in --public-url https://dstack.example.com.",
        )
    remote = public_url or _url("https", name, None if port == HTTPS_PORT else port)
    if not remote.startswith("https:"):
        raise Refused(
            f"--public-url is {remote}, but this server has a certificate and answers only to https.",
            hint="Begin it with https://.",
        )
    return Addresses(here, remote, f"Remote machines will be given {remote}", secure=remote)


def addresses_of(listener: socket.socket, public_url: str | None) -> Addresses:
    host, port = listener.getsockname()[:2]
    bound = ipaddress.ip_address(host.partition("%")[0])
    here = "127.0.0.1" if bound.version == 4 else "::1"
    local = _url("http", here if bound.is_unspecified else host, port)
    if public_url is not None:
        return Addresses(local, public_url, f"Remote machines will be given {public_url}")
    if bound.is_loopback:
        return Addresses(local, local)
    if not bound.is_unspecified:
        return Addresses(local, local, f"Remote machines will be given {local} (--public-url sets another)")
    found = _outward(listener)
    if found is None:
        lost = "Remote machines can't reach this server: it has no external address"
        return Addresses(local, local, f"{lost} (--public-url names one)")
    remote = _url("http", found, port)
    listening = "The server listens on every address of this machine; remote machines will be given"
    return Addresses(local, remote, f"{listening} {remote} (--public-url sets another)")


def _outward(listener: socket.socket) -> str | None:
    """The address that this machine sends from. Connecting a datagram socket only consults the routing table."""
    families = [listener.family]
    if listener.family == socket.AF_INET6 and not listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY):
        families.insert(0, socket.AF_INET)  # it takes both, and IPv4 reaches more machines
    for family in families:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((_ELSEWHERE[family], 9))
            except OSError:
                continue  # no route there
            host = str(probe.getsockname()[0])
            if not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
                return host
    return None


def checked_url(text: str) -> str:
    """A server's address in its canonical form: scheme, host and port. Raises ValueError with the problem."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ValueError(f"it isn't a URL ({error})") from error
    if wrong := _wrong(text, parts, host, port):
        raise ValueError(wrong)
    return _url(parts.scheme, host, port)


def _wrong(text: str, parts: SplitResult, host: str, port: int | None) -> str:
    if parts.scheme not in ("http", "https"):
        return "it doesn't start with http:// or https://"
    if "@" in parts.netloc:
        return "it contains a user name or a password"
    if parts.path not in ("", "/") or "?" in text or "#" in text:
        return "it has a path after the host and the port, but the API is at the root"
    if not host:
        return "it has no host"
    if not _is_host(host) or not text.isprintable():
        return "its host is neither a valid name nor an address"
    if host in ("0.0.0.0", "::") or port == 0:
        return "that is an address to listen on, not to connect to"
    return ""


def _is_host(host: str) -> bool:
    if ":" not in host:
        return _NAME.fullmatch(host) is not None
    try:
        return ipaddress.IPv6Address(host).scope_id is None
    except ValueError:
        return False


def _url(scheme: str, host: str, port: int | None) -> str:
    return f"{scheme}://{f'[{host}]' if ':' in host else host}{'' if port is None else f':{port}'}"
