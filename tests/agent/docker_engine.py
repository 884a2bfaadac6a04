"""A Docker engine of a few lines, on a unix socket in this process: it keeps what it was asked and answers as told.

It runs nothing. A test says what a container prints and how it ends; the HTTP is real, so the client under test is the
one that is shipped. Whether a real engine agrees is for `test_docker_real`.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import socketserver
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

PATIENCE = 120.0  # seconds until a container that says nothing more is given up


@dataclass
class Container:
    """`output` is all it printed so far."""

    name: str
    body: dict[str, Any] = field(default_factory=dict)
    started: str = "2026-11-22T09:00:00.5Z"
    status: str = "created"
    pid: int = 0
    exit_status: int = 0
    out_of_memory: bool = False
    output: bytes = b""
    cut: bool = False  # whoever listens is cut off: the engine went away
    ends_when_waited_for: int | None = None
    holds: dict[str, bytes] = field(default_factory=dict)  # files of its image; a folder ends with a slash
    networks: dict[str, Any] = field(default_factory=dict)
    news: threading.Condition = field(default_factory=threading.Condition)

    def change(self, **fields: Any) -> None:
        with self.news:
            for name, value in fields.items():
                setattr(self, name, value)
            self.news.notify_all()

    def says(self, data: bytes) -> None:
        self.change(output=self.output + data)

    def exits(self, status: int, **more: Any) -> None:
        self.change(status="exited", exit_status=status, **more)

    def inspection(self) -> dict[str, Any]:
        state: dict[str, Any] = {"Status": self.status, "Running": self.status == "running", "Pid": self.pid}
        state["StartedAt"] = self.started
        state |= {"ExitCode": self.exit_status, "OOMKilled": self.out_of_memory}
        where = {"HostConfig": self.body.get("HostConfig") or {}, "NetworkSettings": {"Networks": self.networks}}
        return {"Name": self.name, "State": state, **where}


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass
class Engine:
    socket: str
    containers: dict[str, Container] = field(default_factory=dict)
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    pulls: list[dict[str, Any]] = field(default_factory=list)  # the lines that a pull prints
    brings: dict[str, dict[str, Any]] = field(default_factory=dict)  # the images that a pull brings
    faults: dict[str, tuple[int, str]] = field(default_factory=dict)  # "METHOD /path" → status and text; 0 hangs up
    cut_short: str = ""  # "METHOD /path" of a request whose answer breaks off
    requests: list[Request] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    runs: dict[str, tuple[bytes, int | None]] = field(default_factory=dict)  # image → what its containers print once
    # they are started, and their status; None: they run on
    holds: dict[str, bytes] = field(default_factory=dict)  # what the images of new containers hold
    modes: dict[str, int] = field(default_factory=dict)  # of files that it has
    live_restore: bool = False
    root: str = "/var/lib/docker"
    bridge_created: str = "2026-11-22T10:00:00.123456789+02:00"  # 8:00
    events: list[dict[str, Any]] = field(default_factory=list)  # those of being killed
    everywhere: tuple[str, ...] = ("/bin/sh", "/bin/bash")  # programs that all images have

    def calls(self, start: str = "") -> list[str]:
        return [str(request) for request in self.requests if str(request).startswith(start)]

    def request(self, start: str) -> Request:
        """The last one that begins so."""
        return next(request for request in reversed(self.requests) if str(request).startswith(start))

    def container(self, name: str, **fields: Any) -> Container:
        self.containers[name] = Container(name, **fields)
        return self.containers[name]


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    engine: Engine


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    wbufsize = -1  # head and body in one piece

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a test looks at `requests`."""

    def do_GET(self) -> None:
        engine, at = self.server.engine, urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(self.command, unquote(at.path), dict(parse_qsl(at.query)), dict(self.headers), body)
        engine.requests.append(request)
        if (fault := engine.faults.get(str(request))) is not None:
            self._fail(*fault)
            return
        if engine.cut_short == str(request):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            return
        match [self.command, *request.path.strip("/").split("/")]:
            case ["GET", "info"]:
                self._json({"LiveRestoreEnabled": engine.live_restore, "DockerRootDir": engine.root})
            case ["GET", "networks", "bridge"]:
                self._json({"Created": engine.bridge_created})
            case ["GET", "events"]:
                self._say(200, b"".join(json.dumps(event).encode() + b"\n" for event in engine.events))
            case ["GET", "_ping"]:
                self._say(200, b"OK", "text/plain")
            case ["GET", "images", "json"]:
                self._json([{"Id": image.get("Id")} for image in engine.images.values()])
            case ["GET", "images", *name, "json"]:
                self._found(engine.images.get("/".join(name)), f"No such image: {'/'.join(name)}")
            case ["POST", "images", "create"]:
                engine.images |= engine.brings
                self._say(200, b"".join(json.dumps(line).encode() + b"\r\n" for line in engine.pulls))
            case ["GET", "containers", "json"]:
                label = json.loads(request.query["filters"])["label"][0].split("=")
                labels = ((each, each.body.get("Labels") or {}) for each in engine.containers.values())
                self._json([{"Id": c.name, "Labels": own} for c, own in labels if own.get(label[0]) == label[1]])
            case ["POST", "containers", "create"]:
                engine.container(request.query["name"], body=json.loads(body), holds=engine.holds)
                self._json({"Id": "created"}, 201)
            case [_, "containers", name, *_] if name not in engine.containers:
                self._found(None, f"No such container: {name}")
            case [_, "containers", name, *what]:
                self._container(engine.containers[name], request, what)

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET

    def _container(self, container: Container, request: Request, what: list[str]) -> None:
        engine = self.server.engine
        match [request.method, *what]:
            case ["DELETE"]:
                del engine.containers[container.name]
                self._say(204)
            case ["GET", "json"]:
                self._json(container.inspection())
            case ["HEAD", "archive"]:
                there = request.query["path"] in container.holds or request.query["path"] in engine.everywhere
                stat = base64.b64encode(json.dumps({"mode": engine.modes.get(request.query["path"], 0)}).encode())
                self._say(200 if there else 404, stat=stat.decode())
            case ["GET", "archive"]:
                packed = _packed(container.holds, request.query["path"])
                self._found(None, "Could not find the file") if packed is None else self._say(200, packed)
            case ["GET", "stats"]:
                self._json(engine.usage)
            case ["POST", "start"]:
                said, ends = engine.runs.get(container.body.get("Image", ""), (b"", None))
                container.change(status="running", pid=container.pid, output=container.output + said)
                if ends is not None:
                    container.exits(ends)
                self._say(204)
            case ["POST", "attach"]:
                self._stream(container, 101, len(container.output))
            case ["GET", "logs"]:
                self._stream(container, 200, 0)
            case ["POST", "wait"]:
                if container.ends_when_waited_for is not None:
                    container.exits(container.ends_when_waited_for)
                with container.news:
                    container.news.wait_for(lambda: container.status == "exited", PATIENCE)
                self._json({"StatusCode": container.exit_status})
            case _:
                self._say(204)

    def _stream(self, container: Container, status: int, sent: int) -> None:
        with container.news:
            container.cut = False
            self._pass_on(f"HTTP/1.1 {status} OK\r\n\r\n".encode() + container.output[sent:])
            sent = len(container.output)
            while not container.cut and container.status != "exited":
                if not container.news.wait(PATIENCE):
                    return
                self._pass_on(container.output[sent:])
                sent = len(container.output)

    def _pass_on(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()

    def _found(self, value: dict[str, Any] | None, otherwise: str) -> None:
        self._json({"message": otherwise}, 404) if value is None else self._json(value)

    def _fail(self, status: int, message: str) -> None:
        if status:
            self._say(status, message.encode(), "application/json" if message.startswith("{") else "text/plain")

    def _json(self, value: Any, status: int = 200) -> None:
        self._say(status, json.dumps(value).encode())

    def _say(self, status: int, body: bytes = b"", kind: str = "application/json", stat: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if stat:
            self.send_header("X-Docker-Container-Path-Stat", stat)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _packed(holds: dict[str, bytes], path: str) -> bytes | None:
    """What the engine answers for a path: one file, or with `/.` at its end a folder and what is in it."""
    folder = path.removesuffix(".")
    inside = {f"./{name.removeprefix(folder)}": data for name, data in holds.items() if name.startswith(folder)}
    found = inside if path.endswith("/.") else {path.rpartition("/")[2]: holds[path]} if path in holds else {}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in found.items():
            member = tarfile.TarInfo(name)
            member.type, member.size = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE, len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue() if found else None


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Engine]:
    engine = Engine(str(folder / "d.sock"))
    with _Server(engine.socket, _Handler) as server:
        server.engine = engine
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield engine
        finally:
            for container in engine.containers.values():
                container.change(cut=True, status="exited")
            server.shutdown()
            thread.join()
