"""A client of the Docker Engine's HTTP API over its unix socket, with the few calls that tasks need."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import select
import socket
import time
from typing import IO, TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Tuple, Union
from urllib.parse import quote, urlencode

from ..kernel.lazy import LazyModule

if TYPE_CHECKING:
    import calendar

    from ...contract.agent import RegistryLogin
else:
    calendar = LazyModule("calendar")

STREAM_SECONDS = 60.0  # for connecting and sending; reads have no limit
DEFAULT_SOCKET = "/var/run/docker.sock"


class DockerError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class DockerUnreachable(DockerError):
    """Nothing answers on the socket: the engine is restarting, or there is none."""

    def __init__(self, message: str) -> None:
        super().__init__(0, message)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: Optional[float]) -> None:
        super().__init__("docker", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        # A long path doesn't fit into a socket address, so it is shortened through the folder's descriptor.
        folder = os.open(os.path.dirname(self._path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sock.connect("/proc/self/fd/%d/%s" % (folder, os.path.basename(self._path)))
        finally:
            os.close(folder)


def container_name(task: str) -> str:
    return "dstack-" + task


class DockerClient:
    def __init__(self, path: str = DEFAULT_SOCKET) -> None:
        self.path = path

    def call(
        self,
        method: str,
        path: str,
        query: Optional[Dict[str, Any]] = None,
        body: Union[Dict[str, Any], IO[bytes], None] = None,
        headers: Optional[Dict[str, str]] = None,
        timeout: Optional[float] = 60.0,
    ) -> Any:
        """The JSON response to a request; None if it is empty. Raises DockerError with the engine's message."""
        response = self._open(method, path, query, body, headers, timeout)
        try:
            text = response.read()
        except (OSError, http.client.HTTPException) as problem:
            raise DockerUnreachable(str(problem)) from None
        kind = response.headers.get("Content-Type") or ""
        return json.loads(text) if text and kind.startswith("application/json") else None

    def lines(
        self, method: str, path: str, query: Dict[str, Any], headers: Dict[str, str], idle: Callable[[], None]
    ) -> Iterator[Dict[str, Any]]:
        """A stream of JSON objects; `idle` is called while nothing comes, and can raise to stop."""
        sock, buffer = self.stream(method, path, query, headers, idle=idle)
        with sock:
            while True:
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    if line.strip():
                        yield json.loads(line)
                part = self._receive(sock, idle)
                if not part:
                    return
                buffer += part

    def output(self, name: str, idle: Callable[[], None]) -> Iterator[bytes]:
        """What a container prints, from its start to its end; `idle` as of `lines`."""
        query = {"stdout": 1, "stderr": 1, "follow": 1}
        sock, part = self.stream("GET", "/containers/%s/logs" % quote(name), query, idle=idle)
        with sock:
            yield part
            part = self._receive(sock, idle)
            while part:
                yield part
                part = self._receive(sock, idle)

    def stream(
        self,
        method: str,
        path: str,
        query: Dict[str, Any],
        headers: Optional[Dict[str, str]] = None,
        idle: Callable[[], None] = lambda: None,
        body: Optional[Dict[str, Any]] = None,
    ) -> Tuple[socket.socket, bytes]:
        """A raw connection, and the bytes that arrived with the response's head. HTTP/1.0 has no chunked bodies."""
        connection = UnixConnection(self.path, STREAM_SECONDS)
        data = b"" if body is None else json.dumps(body).encode("utf-8")
        lines = ["%s %s?%s HTTP/1.0" % (method, path, urlencode(query)), "Host: docker"]
        lines += ["Content-Length: %d" % len(data)] + (["Content-Type: application/json"] if data else [])
        lines += ["%s: %s" % item for item in (headers or {}).items()]
        try:
            connection.connect()
            sock = connection.sock
            sock.sendall("\r\n".join([*lines, "", ""]).encode("ascii") + data)
        except OSError as problem:
            connection.close()
            raise DockerUnreachable("%s: %s" % (self.path, problem)) from None
        buffer = b""
        while b"\r\n\r\n" not in buffer:
            part = self._receive(sock, idle)
            if not part:
                sock.close()
                raise DockerUnreachable("the engine closed the connection")
            buffer += part
        head, _, body_start = buffer.partition(b"\r\n\r\n")
        status = int(head.split(None, 2)[1])
        if status in (101, 200):
            return sock, body_start
        with sock:
            text = part = body_start
            while part:
                part = self._receive(sock, idle)
                text += part
        raise DockerError(status, message_of(text.decode("utf-8", "replace")))

    @staticmethod
    def _receive(sock: socket.socket, idle: Callable[[], None]) -> bytes:
        try:
            while not select.select([sock], [], [], 0.2)[0]:
                idle()
            return sock.recv(65536)
        except OSError as problem:
            sock.close()
            raise DockerUnreachable(str(problem)) from None
        except BaseException:
            sock.close()  # `idle` gave up
            raise

    def _open(
        self,
        method: str,
        path: str,
        query: Optional[Dict[str, Any]],
        body: Union[Dict[str, Any], IO[bytes], None],
        headers: Optional[Dict[str, str]],
        timeout: Optional[float],
    ) -> http.client.HTTPResponse:
        connection = UnixConnection(self.path, timeout)
        fields = dict(headers or {})
        data: Any = body
        if isinstance(body, dict):
            data = json.dumps(body).encode("utf-8")
            fields["Content-Type"] = "application/json"
        target = path + ("?" + urlencode(query) if query else "")
        try:
            connection.request(method, target, data, fields)
            response = connection.getresponse()
            if response.status < 400:
                return response
            text = response.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as problem:
            connection.close()
            raise DockerUnreachable("%s: %s" % (self.path, problem)) from None
        connection.close()
        raise DockerError(response.status, message_of(text))

    # Calls ------------------------------------------------------------------------------------------------------

    def ping(self) -> str:
        """Why the engine can't be used; empty if it can."""
        if not os.path.exists(self.path):
            return "there is no Docker engine at %s" % self.path
        try:
            self.call("GET", "/_ping", timeout=5.0)
        except DockerError as problem:
            return "the Docker engine at %s doesn't answer: %s" % (self.path, problem.message)
        return ""

    def container(self, name: str) -> Optional[Dict[str, Any]]:
        return self._found("/containers/%s/json" % quote(name))

    def ended_by_engine(self, name: str, started: str) -> bool:
        """Was a container that has ended stopped through the engine, or by a shutdown of the engine? An engine that is
        still shutting down has that in its events. One that has restarted has lost them, but has recreated its default
        network, unless containers outlive it."""
        network = self._found("/networks/bridge") or {}
        restarted = timestamp(network.get("Created") or "") > timestamp(started)
        # Asked last, because an engine starts several processes to answer it.
        if restarted and (self.call("GET", "/info") or {}).get("LiveRestoreEnabled"):
            restarted = False
        filters = json.dumps({"container": [name], "event": ["kill"]})
        query = {"since": "%.6f" % timestamp(started), "until": "%.6f" % time.time(), "filters": filters}
        return restarted or any(True for _ in self.lines("GET", "/events", query, {}, lambda: None))

    def holds(self, name: str, path: str) -> bool:
        """Does this container have the file?"""
        try:
            self.call("HEAD", "/containers/%s/archive" % quote(name), {"path": path})
        except DockerError as problem:
            if problem.status != 404:
                raise
            return False
        return True

    def mode(self, name: str, path: str) -> Optional[int]:
        """The mode of a file in this container; None if there is no such file."""
        try:
            response = self._open("HEAD", "/containers/%s/archive" % quote(name), {"path": path}, None, None, 60.0)
        except DockerError as problem:
            if problem.status != 404:
                raise
            return None
        response.read()
        encoded = response.headers.get("X-Docker-Container-Path-Stat") or ""
        return int(json.loads(base64.b64decode(encoded))["mode"]) if encoded else None

    def image(self, name: str) -> Optional[Dict[str, Any]]:
        return self._found("/images/%s/json" % quote(name, safe="/:@"))

    def image_ids(self) -> List[str]:
        found = self.call("GET", "/images/json", {"all": 1})
        return [str(each.get("Id") or "") for each in found or []]

    def _found(self, path: str) -> Optional[Dict[str, Any]]:
        try:
            found = self.call("GET", path)
        except DockerError as problem:
            if problem.status == 404:
                return None
            raise
        return found if isinstance(found, dict) else None

    def remove(self, name: str) -> None:
        try:
            self.call("DELETE", "/containers/%s" % quote(name), {"force": 1, "v": 1})
        except DockerError as problem:
            if problem.status not in (404, 409):  # missing, or already being removed
                raise

    def labelled(self, label: str) -> List[Dict[str, Any]]:
        found = self.call("GET", "/containers/json", {"all": 1, "filters": json.dumps({"label": [label]})})
        return found if isinstance(found, list) else []


def timestamp(text: str) -> float:
    """Seconds since 1970 of a time in the engine's form, in any zone and to the nanosecond; 0 if it isn't one."""
    found = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)$", text)
    if not found:
        return 0.0
    seconds, fraction, zone = found.groups()
    east = 0 if zone == "Z" else int(zone[:3]) * 60 + int(zone[0] + zone[4:])
    return calendar.timegm(time.strptime(seconds, "%Y-%m-%dT%H:%M:%S")) + float(fraction or 0) - 60 * east


def message_of(text: str) -> str:
    """The engine's error message."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()


def split_image(image: str) -> Tuple[str, str]:
    """Name and tag (or digest). The tag defaults to `latest`; a registry's port isn't taken for one."""
    if "@" in image:
        name, _, digest = image.partition("@")
        return name, digest
    head, slash, last = image.rpartition("/")
    name, _, tag = last.partition(":")
    return head + slash + name, tag or "latest"


def registry_header(auth: Optional[RegistryLogin]) -> Dict[str, str]:
    if not auth:
        return {}
    text = json.dumps({"username": auth.get("username") or "", "password": auth.get("password") or ""})
    return {"X-Registry-Auth": base64.urlsafe_b64encode(text.encode("utf-8")).decode("ascii")}
