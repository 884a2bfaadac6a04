"""A client's end of a stream, blocking: what tests and benches open to a real server."""

from __future__ import annotations

from types import TracebackType
from urllib.parse import urlencode, urlsplit

from chalicelib.agent.kernel import networks
from chalicelib.agent.streams import websocket
from chalicelib.agent.streams.websocket import Closed
from tests.harness.server import PATIENCE


class Refused(Exception):
    """The server's response isn't a stream."""

    def __init__(self, status: str, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status, self.body = status, body


class Stream:
    _within: int | None = None

    def __init__(
        self,
        url: str,
        token: str,
        run: str,
        target: str,
        *,
        project: str = "main",
        within: int | None = None,
        **query: str,
    ) -> None:
        """`within`: a process in whose network the server is."""
        self._within = within
        query_string = urlencode({"target": target, **query})
        self._open(url, f"/api/project/{project}/streams/{run}?{query_string}", token)

    def _open(self, url: str, path: str, token: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname and parts.port
        with networks.open_network(lambda: self._within) as network:
            self.sock = networks.connect(network, parts.port)
        self.sock.settimeout(PATIENCE)
        key = websocket.new_key()
        self.sock.sendall(websocket.request(path, key, {"Host": parts.netloc, "Authorization": f"Bearer {token}"}))
        head, self._early = self._head()
        status, headers = websocket.parse_head(head)
        if " 101 " not in status:
            body = self._early + b"".join(iter(lambda: self.sock.recv(65536), b""))
            self.sock.close()
            raise Refused(status, body.decode())
        assert headers["sec-websocket-accept"] == websocket.accept_of(key)
        self.peer = websocket.Peer(client=True)

    def _head(self) -> tuple[bytes, bytes]:
        received = b""
        while b"\r\n\r\n" not in received:
            more = self.sock.recv(4096)
            assert more, "the server closed the connection without a response"
            received += more
        head, _, remainder = received.partition(b"\r\n\r\n")
        return head, remainder

    def send(self, data: bytes) -> None:
        self.sock.sendall(self.peer.message(data))

    def receive(self) -> bytes:
        """Some more bytes; empty at the end, and then `closed` says why (None: the connection was cut)."""
        while self.closed is None:
            data, self._early = self._early or self.sock.recv(256 * 1024), b""
            if not data:
                return b""
            parts, back = self.peer.receive(data)
            if back:
                self.sock.sendall(back)
            if parts:
                return b"".join(parts)
        return b""

    def exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size and (more := self.receive()):
            found += more
        return bytes(found)

    def rest(self) -> bytes:
        return b"".join(iter(self.receive, b""))

    @property
    def closed(self) -> Closed | None:
        return self.peer.closed

    def end(self) -> None:
        """Close, as a client does that has had enough."""
        self.sock.sendall(self.peer.close())
        self.rest()
        self.sock.close()

    def cut(self) -> None:
        """End without a word."""
        self.sock.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.sock.close()
