"""A server that answers just enough for `apply` to say what it wants, keeps every request, and then refuses.

Who asked is told by the token, so that many command lines can talk to one recorder at once. The last call of a
conversation (a plan, or a volume to create) is answered with an error that clients show and end on. Only where a case
is to be submitted there is a plan, and the error comes after it.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from chalicelib import contract
from tests.harness.whole import whole
from tests.wire.corpus import Case
from tests.wire.keys import filled

LAST = re.compile(r"/api/project/[^/]+/(?:(?:runs|fleets|gateways)/get_plan|volumes/create|presets/\w+|\w+/apply)$")
REPO = {"repo_type": "remote", "repo_name": "app"}
UNSET = {"clone_url": "https://open.example/app.git", "private_key": None, "oauth_token": None}
ENOUGH = "That is all we wanted to know."
USER = {
    "id": "0b1a7a5e-30b8-4a55-8d8c-1d4a3d2f2f10",
    "username": "admin",
    "created_at": "2026-01-01T00:00:00+00:00",
    "global_role": "admin",
    "email": None,
    "active": True,
    "permissions": {"can_create_projects": True, "can_manage_ssh_fleets": True},
    "ssh_public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHJlY29yZGVyIHB1YmxpYyBrZXkgZm9yIHRlc3RzLi4u recorder\n",
}
CREDENTIALS = {"creds": {"token": "token"}, "ssh_private_key": "no real key\n"}
PROJECT = {
    "project_id": "5a2e7c0e-9d5f-4a1e-bb0a-6d0a3c1b2e4f",
    "project_name": "main",
    "owner": USER,
    "created_at": "2026-01-01T00:00:00+00:00",
    "backends": [],
    "members": [
        {
            "user": USER,
            "project_role": "admin",
            "permissions": {"can_manage_ssh_fleets": True, "can_manage_secrets": True},
        }
    ],
    "is_public": False,
}


@dataclass(frozen=True)
class Request:
    path: str
    body: Any  # of JSON; bytes of an upload
    file_name: str | None = None  # of an upload

    @property
    def call(self) -> str:
        """The last two parts of the path: `runs/get_plan`."""
        return "/".join(self.path.split("?")[0].rsplit("/", 2)[-2:])


def refusal(code: str, message: str) -> tuple[int, Any]:
    return 400, {"detail": [{"code": code, "msg": message}]}


def answer(request: Request, case: Case | None = None) -> tuple[int, Any]:
    path = request.path.split("?")[0]
    if case and case.submitted and request.call == "runs/get_plan":
        return 200, plan(request.body["run_spec"])
    if case and case.stored and request.call == "repos/get":
        return 200, {"repo_id": request.body["repo_id"], "repo_info": REPO, "repo_creds": UNSET | _filled(case.stored)}
    if LAST.search(path):
        return refusal("error", ENOUGH)
    if path == "/api/files/upload_archive":
        return 200, {"id": archive_id(request.file_name or ""), "hash": request.file_name}
    if path == "/api/users/get_my_user":
        return 200, USER | CREDENTIALS
    if path.startswith("/api/projects/"):
        return 200, [PROJECT] if path.endswith("/list") else PROJECT
    if path.endswith("/list"):
        return 200, []
    if path.endswith("/get"):
        return refusal("resource_not_exists", "There is no such thing.")
    return 200, None


def plan(spec: dict[str, Any]) -> dict[str, Any]:
    """A plan of one job, with one offer for it, and else nothing but the keys that a plan must have."""
    spec = {**spec, "run_name": spec["run_name"] or "unnamed"}
    job = {
        "replica_num": 0,
        "job_num": 0,
        "job_name": f"{spec['run_name']}-0-0",
        "commands": [],
        "env": {},
        "image_name": "i",
        "requirements": {"resources": spec["configuration"]["resources"], "spot": False},
    }
    machine = {"cpus": 2, "memory_mib": 8192, "gpus": [], "spot": False, "disk": {"size_mib": 102400}}
    offer = {
        "backend": "aws",
        "instance": {"name": "small", "resources": machine},
        "region": "r",
        "price": 0.1,
        "availability": "available",
    }
    found = {
        "project_name": "main",
        "user": "admin",
        "run_spec": spec,
        "effective_run_spec": spec,
        "job_plans": [{"job_spec": job, "offers": [offer], "total_offers": 1, "max_price": 0.1}],
        "current_resource": None,
        "action": "create",
    }
    made: dict[str, Any] = whole(contract.RunPlan, found)
    return made


def _filled(stored: Mapping[str, str | None]) -> dict[str, str | None]:
    return {name: value and filled(value) for name, value in stored.items()}


def archive_id(name: str) -> str:
    """The same for the same content, as a server that keeps each archive once would say."""
    return str(uuid.UUID(bytes=uuid.uuid5(uuid.NAMESPACE_OID, name).bytes, version=4))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement
    server: RecordingServer

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = self.headers.get("Content-Type") or ""
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        request = Request(self.path, None)
        if kind.startswith("multipart/"):
            form = message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + raw)
            (part,) = form.get_payload()  # type: ignore[misc]
            request = Request(self.path, part.get_payload(decode=True), part.get_filename())  # type: ignore[union-attr]
        elif raw:
            request = Request(self.path, json.loads(raw))
        self.server.record(token, request)
        status, answer_body = answer(request, self.server.cases.get(token))
        body = json.dumps(answer_body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what came is kept."""


class RecordingServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.cases: dict[str, Case] = {}
        self._requests: dict[str, list[Request]] = {}
        self._lock = threading.Lock()

    def record(self, token: str, request: Request) -> None:
        with self._lock:
            self._requests.setdefault(token, []).append(request)

    def taken(self, token: str) -> list[Request]:
        with self._lock:
            return self._requests.pop(token, [])


@dataclass
class Recorder:
    """The server, for as long as a `with` lasts."""

    server: RecordingServer = field(default_factory=RecordingServer)

    def __enter__(self) -> Recorder:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def expect(self, token: str, case: Case) -> None:
        """Who is about to ask, and in which case."""
        self.server.cases[token] = case

    def taken(self, token: str) -> list[Request]:
        """What this token has sent since this was last asked."""
        return self.server.taken(token)
