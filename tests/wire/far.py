"""Where the repositories of cases are: hosts that only the clients of these tests can see.

Their `https_proxy` is a `Far`. It lets them through to two hosts, `open.example` and `closed.example`, and is both of
them itself: behind TLS, with an authority that git is told to trust, `git http-backend` serves the repositories, from
the second host only to whoever knows the token. The door to every other host is closed.

Over ssh, a stand-in for the `ssh` program lets one key in. Everything else is the real thing, git on both ends.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import os
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

OPEN, CLOSED = "open.example", "closed.example"
TOKEN = "the-right-token"
DAY = datetime.timedelta(days=1)
SSH = """#!/bin/bash
# One key may read; what it may read is there by the path that was asked for.
case "$1" in -V | -G) exec {ssh} "$@" ;; esac
while [ $# -gt 1 ]; do [ "$1" = -i ] && key=$2; shift; done
cmp -s "$key" {home}/good || {{ echo "Permission denied (publickey)." >&2; exit 255; }}
eval "set -- $1"
exec git-upload-pack {root}"$2"
"""


def authority(folder: Path) -> tuple[Path, Path]:
    """A certificate for both hosts, which is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "far")])
    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [x509.DNSName(OPEN), x509.DNSName(CLOSED)]
    names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - DAY, now + DAY)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    trusted, private = folder / "far.pem", folder / "far.key"
    trusted.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return trusted, private


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FarServer
    host = ""

    def do_CONNECT(self) -> None:
        host = self.path.partition(":")[0]
        if host not in (OPEN, CLOSED) or not self.path.endswith(":443"):
            self.send_error(403, "no such host")
            return
        self.send_response(200)
        self.end_headers()
        self.host = host
        self.connection = self.server.tls.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb")
        self.close_connection = False

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.host == CLOSED and self._password() != TOKEN:
            self._answer(401, {"WWW-Authenticate": 'Basic realm="far"'}, b"")
            return
        path, _, query = self.path.partition("?")
        variables = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_COUNT": "1",  # the root's repositories are served by root to nobody
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol") or "",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type") or "",
            "CONTENT_LENGTH": str(len(body)),
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=variables, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines() if ": " in line)
        self._answer(int(headers.pop("Status", "200").split()[0]), headers, content)

    do_POST = do_GET

    def _password(self) -> str:
        kind, _, coded = (self.headers.get("Authorization") or "").partition(" ")
        return base64.b64decode(coded).decode().partition(":")[2] if kind == "Basic" else ""

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a client says itself what it was refused."""


class FarServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, root: Path, tls: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root, self.tls = root, tls

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up has heard enough."""


class Far:
    """The hosts, for as long as a `with` lasts; `root` holds a folder for each case."""

    def __init__(self, root: Path) -> None:
        self.trusted, private = authority(root)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self.trusted, private)
        self.server = FarServer(root, tls)

    def __enter__(self) -> Far:
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def variables(self) -> dict[str, str]:
        """What a client needs to see them."""
        proxy = f"http://127.0.0.1:{self.server.server_address[1]}"
        return {"https_proxy": proxy, "GIT_SSL_CAINFO": str(self.trusted)}
