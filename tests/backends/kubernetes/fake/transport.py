"""The server's socket: HTTPS on loopback, with a certificate of its own."""

from __future__ import annotations

import datetime
import ipaddress
import json
import select
import socket
import ssl
import tempfile
import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.backends.fakes.script import Answer, Cut
from tests.backends.fakes.server import Request
from tests.backends.kubernetes.fake import errors
from tests.backends.kubernetes.fake.api import Api, Lines, Reply
from tests.backends.kubernetes.fake.streams import Upgrade


@cache
def certificate() -> tuple[bytes, bytes]:
    """Its own authority, and its key: for all servers of this process."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubernetes")])
    addresses = x509.SubjectAlternativeName(
        [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    )
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(addresses, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(serialization.Encoding.PEM), key.private_bytes(*form)


@cache
def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pem"
        file.write_bytes(b"".join(certificate()))
        context.load_cert_chain(file)
    return context


class Server:
    def __init__(self, api: Api, port: int = 0) -> None:
        self.wrong: list[Exception] = []
        self._server = _Server(("127.0.0.1", port), _handler(api, self.wrong))
        self._closing = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.url = f"https://127.0.0.1:{self._server.server_port}"

    def _serve(self) -> None:
        """Not `serve_forever`, which sees only with its next poll that it is to end."""
        while not self._closing:
            try:
                self._server.process_request(*self._server.get_request())
            except OSError:  # the server was closed, or a client has left
                continue

    def close(self) -> None:
        self._closing = True
        self._server.socket.shutdown(socket.SHUT_RDWR)  # ends the wait for a connection
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def get_request(self) -> tuple[socket.socket, Any]:
        sock, address = super().get_request()
        # The handshake is the business of the connection's own thread.
        return _context().wrap_socket(sock, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no error of the server's; its own are in `wrong`."""


def _handler(api: Api, wrong: list[Exception]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            self.request.do_handshake()
            super().setup()

        def _any(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            assert "transfer-encoding" not in headers, "no client here sends a body in chunks"
            body = self.rfile.read(int(headers.get("content-length", 0)))
            try:
                self._answer(api.reply(Request(self.command, self.path, headers, body), self._gone))
            except Cut:
                self.close_connection = True
            except (BrokenPipeError, ConnectionError, ssl.SSLError):
                self.close_connection = True
            except Exception as error:
                wrong.append(error)
                self._answer(Reply(Answer(500, errors.status(500, "InternalError", f"the fake is wrong: {error!r}"))))

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any

        def _answer(self, reply: Reply) -> None:
            answer = reply.answer
            if isinstance(answer, Upgrade):
                self.close_connection = True
                self.wfile.write(answer.head)
                answer.serve(self.connection)
            elif isinstance(answer, Lines):
                self._head(200, {"content-type": answer.kind, "transfer-encoding": "chunked"}, reply)
                for piece in answer.pieces:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\n\r\n")
            else:
                text = isinstance(answer.body, str | bytes)
                content = _content(answer.body)
                kind = {"content-type": "text/plain" if text else "application/json"}
                self._head(answer.status, {**kind, **answer.headers, "content-length": str(len(content))}, reply)
                self.wfile.write(content)

        def _head(self, status: int, headers: dict[str, str], reply: Reply) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            for each in reply.warnings:
                self.send_header("warning", f"299 - {json.dumps(each)}")
            self.end_headers()

        def _gone(self) -> bool:
            """A client that waits says nothing more, so whatever comes from it is its end."""
            return bool(select.select([self.connection], [], [], 0)[0])

        def log_message(self, format: str, *args: Any) -> None:
            """Tests read the cluster's `calls`."""

    return Handler


def _content(body: Any) -> bytes:
    if isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else orjson.dumps(body)
