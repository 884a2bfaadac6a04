"""A scripted control plane with a record of its requests: in this process, or over HTTP."""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from chalicelib import contract
from chalicelib.api.dispatch import match
from docs.openapi.declared import declared
from tests.harness.whole import whole
from tests.world import wires

RUN_ID = "7a4ef1dd-5248-421c-81a3-7265175cdd1d"
JOB_ID = "17c09196-7120-480c-be4f-97fc1ca4282d"
FLEET_ID = "164594f0-8051-412a-86bc-335dfd2bdcbf"
VOLUME_ID = "6f0c7a1e-2b6d-4d0e-9a55-1f2d3c4b5a69"
GATEWAY_ID = "0b7f7c1d-55f0-4b1c-9a54-6f21d4c9a3be"
PROJECT_ID = "73b0889f-cc78-4436-a12a-6b33681a1256"
NOT_THERE = (400, {"detail": [{"msg": "Not there", "code": "resource_not_exists"}]})


class Answer(tuple[int, Any]):
    """A status and a body, where it isn't 200."""


class Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has left is no error of the plane's."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@dataclass
class RecordedRequest:
    path: str
    body: Any
    headers: dict[str, str]
    raw: bytes = b""


@dataclass
class Plane:
    """`answers` maps a path to a value, a (status, value) pair, a function of the body, or `steps(...)`: one after
    the other, the last one for ever."""

    answers: dict[str, Any] = field(default_factory=dict)
    requests: list[RecordedRequest] = field(default_factory=list)
    url: str = "http://127.0.0.1:30000"
    _server: ThreadingHTTPServer | None = None

    @property
    def via(self) -> Callable[[Any], wires.Wire]:
        """For a `Terminal`: its commands reach this plane without a socket."""
        return wires.to(self.url, lambda _, path, headers, raw: self.serve(path, headers, raw))

    def serve(self, path: str, headers: Mapping[str, str], raw: bytes) -> tuple[int, bytes]:
        structured = headers.get("Content-Type", "").startswith("application/json")
        body = json.loads(raw) if raw and structured else None
        status, value = self.answer(RecordedRequest(path, body, dict(headers), raw))
        return status, value if isinstance(value, bytes) else json.dumps(value).encode()

    def start(self) -> None:
        """Serve over HTTP from here on, for clients in other processes and for tests of the connection itself."""
        plane = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # an answer goes out in two pieces, and the second would wait for 40 ms

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, data = plane.serve(self.path, dict(self.headers.items()), raw)
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()

    @contextmanager
    def on_http(self) -> Iterator[Plane]:
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def answer(self, request: RecordedRequest) -> tuple[int, Any]:
        self.requests.append(request)
        path = request.path.split("?")[0].removeprefix("/api/project/main")
        if path not in self.answers:
            return 404, {"detail": "Not Found"}
        found = self.answers[path]
        if isinstance(found, list) and found and isinstance(found[0], Step):
            found = found[0].value if len(found) == 1 else found.pop(0).value
        if callable(found):
            found = found(request.body)
        return found if isinstance(found, tuple) else (200, _whole_answer(request.path.split("?")[0], found))

    def paths(self) -> list[str]:
        return [request.path.split("?")[0].removeprefix("/api/project/main") for request in self.requests]

    def bodies(self, path: str) -> list[Any]:
        return [one.body for one in self.requests if one.path.split("?")[0].removeprefix("/api/project/main") == path]


def _whole_answer(path: str, given: Any) -> Any:
    """What a test leaves out of an answer."""
    found = match(path)
    said = next(filter(None, map(declared, found.routes.values())), None) if found else None
    return given if said is None else whole(said.answer, given)


@dataclass
class Step:
    """One of several answers to the same path, in their order."""

    value: Any


def steps(*values: Any) -> list[Step]:
    return [Step(value) for value in values]


def _whole(kind: Any, found: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = whole(kind, found)
    return made


# --- things as the API shows them ------------------------------------------------------------------------------------


def machine(
    *, cpus: int = 4, memory: int = 16384, gpus: tuple[tuple[str, int], ...] = (), spot: bool = False
) -> dict[str, Any]:
    return {
        "cpus": cpus,
        "memory_mib": memory,
        "gpus": [{"name": name, "memory_mib": size, "vendor": "nvidia"} for name, size in gpus],
        "spot": spot,
        "disk": {"size_mib": 102400},
        "cpu_arch": "x86",
        "description": "",
    }


def offer(name: str = "fake-cpu-4", price: float = 0.1, **changes: Any) -> dict[str, Any]:
    resources = changes.pop("resources", machine())
    found = {
        "backend": "aws",
        "instance": {"name": name, "resources": resources},
        "region": "us-east-1",
        "price": price,
        "availability": "available",
        "blocks": 1,
        "total_blocks": 1,
    }
    return _whole(contract.Offer, {**found, **changes})


def submission(status: str = "running", **changes: Any) -> dict[str, Any]:
    placed = offer()
    found = {
        "id": JOB_ID,
        "submission_num": 0,
        "deployment_num": 0,
        "submitted_at": "2026-11-21T05:00:00Z",
        "last_processed_at": "2026-11-21T05:00:10Z",
        "finished_at": None,
        "status": status,
        "status_message": status,
        "exit_status": None,
        "job_provisioning_data": {
            "backend": placed["backend"],
            "instance_type": placed["instance"],
            "region": placed["region"],
            "price": placed["price"],
            "dockerized": True,
        },
        "job_runtime_data": {"offer": placed},
    }
    return _whole(contract.Submission, {**found, **changes})


def run(name: str = "train", status: str = "running", **changes: Any) -> dict[str, Any]:
    latest = changes.pop("latest", submission(status if status != "submitted" else "submitted"))
    if status in ("pending", "submitted"):
        latest = {**latest, "job_provisioning_data": None, "job_runtime_data": None}
    found = {
        "id": RUN_ID,
        "project_name": "main",
        "user": "admin",
        "fleet": None,
        "submitted_at": "2026-11-21T05:00:00Z",
        "last_processed_at": "2026-11-21T05:00:10Z",
        "status": status,
        "status_message": status,
        "run_spec": {"run_name": name, "configuration": {"type": "task", "name": name, "commands": ["echo hi"]}},
        "jobs": [
            {"job_spec": {"replica_num": 0, "job_num": 0, "job_name": f"{name}-0-0"}, "job_submissions": [latest]}
        ],
        "latest_job_submission": latest,
        "cost": 0.0,
        "error": None,
    }
    return _whole(contract.Run, {**found, **changes})


def finished(name: str = "train", status: str = "done", exit_status: int = 0, **changes: Any) -> dict[str, Any]:
    latest = submission(
        "done" if status == "done" else "failed",
        status_message=f"exited ({exit_status})",
        exit_status=exit_status,
        finished_at="2026-11-21T05:00:09Z",
    )
    return run(name, status, latest=latest, cost=0.0003, **changes)


def instance(number: int = 0, status: str = "idle", **changes: Any) -> dict[str, Any]:
    found = {
        "id": FLEET_ID,
        "project_name": "main",
        "backend": "aws",
        "instance_type": {"name": "fake-cpu-4", "resources": machine()},
        "name": f"gpu-{number}",
        "instance_num": number,
        "status": status,
        "unreachable": False,
        "health_status": "healthy",
        "health_message": None,
        "created": "2026-11-21T04:00:00Z",
        "region": "us-east-1",
        "price": 0.1,
        "total_blocks": 1,
        "busy_blocks": 0,
    }
    return _whole(contract.Instance, {**found, **changes})


def fleet(name: str = "gpu", instances: list[Any] | None = None, **configuration: Any) -> dict[str, Any]:
    base = {"type": "fleet", "name": name, "nodes": {"min": 0, "max": 2}, "placement": None, "blocks": 1}
    found = {
        "id": FLEET_ID,
        "name": name,
        "project_name": "main",
        "spec": {"configuration": {**base, **configuration}, "configuration_path": "fleet.yml", "profile": {}},
        "created_at": "2026-11-21T04:00:00Z",
        "status": "active",
        "instances": instances or [],
    }
    return _whole(contract.Fleet, found)


def volume(name: str = "data", status: str = "active", **fields: Any) -> dict[str, Any]:
    base = {"type": "volume", "name": name, "backend": "aws", "region": "us-east-1", "availability_zone": None}
    made = {"backend": "aws", "volume_id": "vol-1", "size_gb": 100, "availability_zone": "us-east-1b", "price": 8.0}
    found = {
        "id": VOLUME_ID,
        "name": name,
        "user": "admin",
        "project_name": "main",
        "configuration": {**base, "size": 100.0, "volume_id": None},
        "external": False,
        "created_at": "2026-11-21T04:00:00Z",
        "status": status,
        "status_message": None,
        "provisioning_data": made,
        "cost": 0.0123,
        "attachments": [],
        **fields,
    }
    return _whole(contract.Volume, found)


def gateway(name: str = "door", status: str = "running", **fields: Any) -> dict[str, Any]:
    configuration = {"type": "gateway", "name": name, "backend": "remote", "region": "edge", "fleet": "edge"}
    at = {"backend": "remote", "region": "edge", "created_at": "2026-11-21T04:00:00Z", "status_message": None}
    found = {
        "id": GATEWAY_ID,
        "name": name,
        "project_name": "main",
        "configuration": {**configuration, "domain": "*.example.com", "certificate": {"type": "lets-encrypt"}},
        "created_at": "2026-11-21T04:00:00Z",
        "status": status,
        "status_message": None,
        "hostname": "192.168.1.10",
        "wildcard_domain": "example.com",
        "default": True,
        "replicas": [{**at, "hostname": "192.168.1.10", "replica_num": 0, "status": "running"}],
        **fields,
    }
    return _whole(contract.Gateway, found)


def log_page(text: str, following: str | None = None) -> dict[str, Any]:
    entries = [
        {
            "timestamp": "2026-11-21T05:00:05Z",
            "log_source": "stdout",
            "message": base64.b64encode(line.encode()).decode(),
        }
        for line in text.splitlines(keepends=True)
    ]
    return {"logs": entries, "next_token": following}


Handler = Callable[[Any], Any]
