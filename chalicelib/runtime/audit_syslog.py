"""An audit log to a syslog server, as messages of RFC 5424: over TLS or TCP with their length before them (RFC 5425 and
6587), over UDP or a local socket one in a datagram.

What was sent is noted in the data folder, after it was sent: a message may come twice after a crash, and is then the
same. Syslog confirms nothing: over UDP a message can be lost on its way, over TCP and TLS one that its server had not
read when it ended. Its number and the chain show that.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from chalicelib.domain.audit_chain import Head
from chalicelib.domain.instants import iso
from chalicelib.errors import Invalid, Refused, Transient
from chalicelib.store.disk import disk_error

PORTS = {"udp": 514, "tcp": 601, "tls": 6514}
PRIORITY = 13 * 8 + 6  # of the log's audit, for information
TIMEOUT = 10.0  # seconds
STATE = "audit-syslog.json"


@dataclass(frozen=True)
class Address:
    scheme: str  # udp, tcp, tls or unix
    host: str = ""
    port: int = 0
    path: str = ""


def address_of(text: str) -> Address:
    """Raises Invalid for what isn't the address of a syslog server."""
    try:
        parts = urlsplit(text)
        scheme, port = parts.scheme, parts.port
    except ValueError:
        scheme, port = "", None
    if scheme == "unix" and parts.path and not parts.netloc:
        return Address(scheme, path=parts.path)
    if scheme in PORTS and parts.hostname and not parts.path.strip("/") and parts.username is None:
        return Address(scheme, parts.hostname, port or PORTS[scheme])
    raise Invalid(
        f"DSTACK_SERVER_AUDIT_SYSLOG is {text[:200]!r}, not the address of a syslog server.",
        hint="Set it as in tls://logs.example.com:6514, tcp://logs.example.com, udp://127.0.0.1:514 or unix:///dev/log.",
    )


def connect(address: Address) -> socket.socket:
    if address.scheme == "unix":
        local = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        local.connect(address.path)
        return local
    if address.scheme == "udp":
        family, *_, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)[0]
        datagrams = socket.socket(family, socket.SOCK_DGRAM)
        datagrams.connect(where)
        return datagrams
    stream = socket.create_connection((address.host, address.port), timeout=TIMEOUT)
    if address.scheme == "tcp":
        return stream
    return ssl.create_default_context().wrap_socket(stream, server_hostname=address.host)


class SyslogSink:
    every = 1.0

    def __init__(
        self,
        address: Address,
        folder: Path,
        *,
        host: str = "",
        connect: Callable[[Address], socket.socket] = connect,
    ) -> None:
        self._address, self._path, self._connect = address, folder / STATE, connect
        self._host = host or socket.gethostname() or "-"
        self._socket: socket.socket | None = None

    def end(self) -> Head:
        try:
            return Head(**orjson.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return Head()
        except (OSError, TypeError, orjson.JSONDecodeError) as error:
            raise Refused(
                f"{self._path} doesn't say how far the audit log to syslog has come: {error}.",
                hint="Delete it, and the server sends the events that it still has, as a new chain.",
            ) from error

    def append(self, lines: Sequence[bytes], head: Head) -> None:
        try:
            if self._socket is not None and self._stream and _ended(self._socket):
                self._close()
            if self._socket is None:
                self._socket = self._connect(self._address)
            for line in lines:
                self._socket.sendall(self._framed(message_of(line, self._host)))
        except OSError as error:
            self._close()
            where = self._address.path or f"{self._address.host}:{self._address.port}"
            raise Transient(f"The audit log can't be sent to syslog at {where}: {error}.") from error
        self._note(head)

    @property
    def _stream(self) -> bool:
        return self._address.scheme in ("tcp", "tls")

    def _framed(self, message: bytes) -> bytes:
        return b"%d %s" % (len(message), message) if self._stream else message

    def _note(self, head: Head) -> None:
        draft = self._path.with_suffix(".draft")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(orjson.dumps(asdict(head)))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)
        except OSError as error:
            raise disk_error(self._path, error) from error

    def _close(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
            self._socket = None


def _ended(stream: socket.socket) -> bool:
    """Has the server closed the connection, as in a restart? What is sent then is lost, without an error."""
    stream.setblocking(False)
    try:
        while stream.recv(4096):  # a server has nothing to say
            pass
        return True
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
    finally:
        stream.settimeout(TIMEOUT)


def message_of(line: bytes, host: str) -> bytes:
    """A line of the chain, as a message without its newline."""
    event: dict[str, Any] = orjson.loads(line)["event"]
    kind = str(event.get("type") or "-")[:32]
    return f"<{PRIORITY}>1 {iso(event['at'])} {host[:255]} dstack - {kind} - ".encode() + line.rstrip(b"\n")
