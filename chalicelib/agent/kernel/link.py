"""HTTP requests to the server, one at a time over a persistent connection. There are two links in two threads, because
one may be waiting in a poll."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any, BinaryIO, Dict, Mapping, Optional, cast
from urllib.parse import urlsplit

from . import route
from .lazy import LazyModule

if TYPE_CHECKING:
    import shutil

    from ...contract.agent import SyncMessage, SyncReply
else:
    shutil = LazyModule("shutil")

CONNECT_SECONDS = 15.0
PROBLEMS = {401: "refused", 403: "refused", 413: "unacceptable", 422: "unacceptable"}


class LinkError(Exception):
    """No usable response. `problem` is `refused` for 401 and 403, `unacceptable` if the server would never accept the
    message, else `network`. `status` is the response's, 0 if there was none. `moved_to`: the address of the server that
    has taken over, if the response names one."""

    def __init__(
        self, message: str, problem: str = "network", retry_after: float = 0.0, status: int = 0, moved_to: str = ""
    ) -> None:
        super().__init__(message)
        self.problem, self.retry_after, self.status, self.moved_to = problem, retry_after, status, moved_to


class _Secure(http.client.HTTPConnection):
    default_port = 443  # which is left out of `Host`


class Link:
    def __init__(self, via: route.Via = route.direct) -> None:
        self._via = via
        self._connection: Optional[http.client.HTTPConnection] = None
        self._base = ""

    def sync(self, base: str, body: SyncMessage, credential: str, wait: float) -> SyncReply:
        return cast("SyncReply", self.call(base, "POST", "/agent/sync", body, credential, wait))

    def call(
        self,
        base: str,
        method: str,
        path: str,
        body: Optional[Mapping[str, object]],
        credential: str,
        wait: float = 0.0,
    ) -> Dict[str, Any]:
        """The JSON object of the response, empty for 204. `wait`: seconds for which the server may hold the request."""
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode("utf-8")
        headers = {"Authorization": "Bearer " + credential, "Content-Type": "application/json"}
        response = self._request(base, method, path, data, headers, wait + CONNECT_SECONDS)
        text = response.read()
        if response.status == 204:
            return {}
        if response.status == 503:
            self.close()  # it doesn't decide: its name may lead to another server by now
        if response.status != 200:
            raise self._error(response, text)
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise LinkError("%s answered %s with something that isn't a JSON object" % (base, path.partition("?")[0]))
        return value

    def fetch(self, base: str, path: str, credential: str, out: BinaryIO) -> None:
        # API gateways send raw bytes only to clients that accept them.
        headers = {"Authorization": "Bearer " + credential, "Accept": "application/octet-stream"}
        response = self._request(base, "GET", path, None, headers, 60.0)
        if response.status != 200:
            raise self._error(response, response.read())
        try:
            shutil.copyfileobj(response, out)
            if response.length:  # shorter than announced, which isn't an error when read in pieces
                raise http.client.IncompleteRead(b"", response.length)
        except (http.client.HTTPException, OSError) as problem:
            if isinstance(problem, OSError) and problem.filename:
                raise
            raise LinkError("%s closed the connection during %s: %s" % (base, path, problem)) from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _request(
        self, base: str, method: str, path: str, data: Optional[bytes], headers: Dict[str, str], timeout: float
    ) -> http.client.HTTPResponse:
        """Send a request. If the server has closed the persistent connection meanwhile, repeat it on a fresh one, which
        is safe: the server accepts a message only once, by its `seq`."""
        reused = self._connection is not None and self._base == base
        while True:
            try:
                connection = self._connected(base, timeout)
                connection.request(method, urlsplit(base).path.rstrip("/") + path, data, headers)
                return connection.getresponse()
            except (http.client.HTTPException, OSError, ValueError) as problem:
                self.close()
                if reused and isinstance(problem, (ConnectionError, http.client.BadStatusLine)):
                    reused = False
                    continue
                raise LinkError("%s: %s" % (base, problem or type(problem).__name__)) from None

    def _connected(self, base: str, timeout: float) -> http.client.HTTPConnection:
        if self._connection is not None and self._base == base and self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
            return self._connection
        self.close()
        parts, sock = urlsplit(base), route.connect(base, self._via(), CONNECT_SECONDS)
        kind = _Secure if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port)
        connection.sock = sock
        sock.settimeout(timeout)
        self._connection, self._base = connection, base
        return connection

    @staticmethod
    def _error(response: http.client.HTTPResponse, text: bytes) -> LinkError:
        problem = PROBLEMS.get(response.status, "network")
        after = response.headers.get("Retry-After") or ""
        excerpt = text[:300].decode("utf-8", "replace")
        retry_after = float(after) if after.isdigit() else 0.0
        moved_to = _server_in(text) if response.status == 308 else ""
        return LinkError("HTTP %d %s" % (response.status, excerpt), problem, retry_after, response.status, moved_to)


def _server_in(text: bytes) -> str:
    """The address that a redirection names; empty if it names none."""
    try:
        value = json.loads(text)
    except ValueError:
        return ""
    return str(value.get("server") or "") if isinstance(value, dict) else ""
