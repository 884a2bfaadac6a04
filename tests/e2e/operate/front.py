"""What must work through whatever is between a server and its clients: its own TLS, or a proxy."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cli.connection import calls
from cli.connection.client import Client
from cli.connection.streams import Stream
from tests.bench.measure import task
from tests.harness.gates import gate
from tests.harness.pebble import made_certificate
from tests.harness.ports import free_port
from tests.harness.server import PATIENCE, Server, until

HOST = "localhost"
ECHO = """python3 -c 'import socket
call = socket.create_server(("127.0.0.1", {port})).accept()[0]
while data := call.recv(65536): call.sendall(data)' &"""


@dataclass
class Front:
    """`url`: where clients and agents reach the server; `trusted`: PEM, whom they trust."""

    server: Server
    url: str
    trusted: Path

    @property
    def client(self) -> Client:
        return Client(self.url, self.server.token, "main")

    def join(self) -> None:
        """Buy the machine for the jobs, and wait until its agent has come through the front."""
        spec = {"configuration": {"type": "fleet", "name": "cloud", "nodes": 1, "resources": {"cpu": "1.."}}}
        self.client.in_project("fleets/apply", {"plan": {"spec": spec}, "force": False})
        until("the machine to join", lambda: self._machines() == ["idle"])

    def _machines(self) -> list[str]:
        fleets = self.client.in_project("fleets/list", {})
        return [instance["status"] for fleet in fleets for instance in fleet["instances"]]

    def status(self, name: str) -> str:
        return str(self.client.in_project("runs/get", {"run_name": name})["status"])

    def submit(self, name: str, *commands: str) -> None:
        plan = {"run_spec": task(name, *commands), "current_resource": None}
        self.client.in_project("runs/apply", {"plan": plan, "force": False})

    @contextmanager
    def job(self, name: str) -> Iterator[Stream]:
        """A job on a bought machine, and a stream to a port of it; it ends with the block."""
        port = free_port()
        with gate() as end:
            self.submit(name, ECHO.format(port=port), "echo begun", end.command, "echo over")
            status = until("the job to run", lambda: (now := self.status(name)) in ("running", "failed") and now)
            assert status == "running"
            yield until("the job to listen", lambda: self._stream(name, port))
            end.open()
            until("the job to end", lambda: self.status(name) == "done")

    def _stream(self, name: str, port: int) -> Stream | None:
        stream = self.client.stream(name, {"target": f"port:{port}"})
        stream.send(b"a")
        if stream.receive(PATIENCE):
            return stream
        stream.close()  # nobody listens yet
        return None

    def connect(self, source: str = "127.0.0.1") -> http.client.HTTPSConnection:
        parts, context = urlsplit(self.url), ssl.create_default_context(cafile=str(self.trusted))
        made = http.client.HTTPSConnection(
            HOST, parts.port, context=context, timeout=PATIENCE, source_address=(source, 0)
        )
        made.sock = context.wrap_socket(
            socket.create_connection(("127.0.0.1", parts.port or 443), PATIENCE, (source, 0)), server_hostname=HOST
        )
        return made

    def get(self, path: str, source: str = "127.0.0.1", **headers: str) -> http.client.HTTPResponse:
        connection = self.connect(source)
        connection.request("GET", path, headers={"Authorization": f"Bearer {self.server.token}", **headers})
        return connection.getresponse()


def certificate(folder: Path) -> tuple[Path, Path]:
    """Of `localhost`, signed by itself."""
    paths = folder / "fullchain.pem", folder / "privkey.pem"
    for path, text in zip(paths, made_certificate(HOST, "127.0.0.1"), strict=True):
        path.write_text(text)
    return paths


@contextmanager
def trusting(authorities: Path) -> Iterator[None]:
    """This process's clients trust them, as those of a user do who sets the variable."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(authorities))
        yield


def a_job_runs_and_bytes_come_and_go(front: Front) -> None:
    """Its agent's long polls and uploads of logs, and both ends of a stream, go through the front."""
    with front.job("echoing") as stream:
        part = bytes(range(256)) * 128
        for _ in range(32):  # by turns: an echo that nobody reads would stand still
            stream.send(part)
            back = b""
            while len(back) < len(part):
                received = stream.receive(PATIENCE)
                assert received, f"the stream has ended: {stream.code} {stream.reason}"
                back += received
            assert back == part
        stream.close()
    submission = front.client.in_project("runs/get", {"run_name": "echoing"})["latest_job_submission"]["id"]
    request = {"run_name": "echoing", "job_submission_id": submission, "limit": 1000, "descending": False}

    def log() -> bytes:
        page = front.client.in_project("logs/poll", request)
        return b"".join(base64.b64decode(entry["message"]) for entry in page["logs"])

    until("the log", lambda: b"over" in log())


def events_come_as_they_happen(front: Front) -> None:
    """On a response that doesn't end."""
    cursor = front.client.get("/api/v1/changes")["cursor"]
    response = front.get(f"/api/v1/changes?cursor={cursor}", Accept="text/event-stream")
    assert response.status == 200 and response.headers["Content-Type"].startswith("text/event-stream")
    front.client.post("/api/projects/create", {"project_name": "made-meanwhile"})
    front.submit("quick", "true")
    assert any(b"quick" in line for line in iter(response.readline, b""))
    response.close()


def a_large_upload_arrives(front: Front, size: int) -> None:
    calls.files_upload_archive(front.client, hashlib.sha256(bytes(size)).hexdigest(), bytes(size))


def real_addresses_are_logged(front: Front) -> None:
    """Of clients behind the front, whatever they say of themselves; and nobody else is believed."""
    front.get("/api/v1/changes", "127.0.0.9", **{"X-Forwarded-For": "6.6.6.6"}).read()
    until("the line", lambda: "127.0.0.9" in clients(front.server))
    assert "6.6.6.6" not in clients(front.server)


def clients(server: Server) -> list[str]:
    """The addresses in the lines of the log about requests."""
    lines = [json.loads(line) for line in server.lines if line.startswith("{")]
    return [str(line.get("client")) for line in lines if line["logger"] == "dstack.requests"]
