"""A deployment with one more artefact, whose SDK no other function has, and the provider that it is for.

The clone that is deployed gets one more provider: its package, an extra of `pyproject.toml`, and its row, which names
an artefact. What is built, deployed and asked is rendered from that. The SDK is a package of the tests' lock that
neither another artefact nor the emulator has; the provider is an HTTP server of this process.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.aws.deployment import STAGE, Deployment
from tests.harness.server import HttpError

SDK, TYPE = "xmltodict", "vultr"
GOOD = "a-good-key"
ROW = f"""    "{TYPE}": Row(
        "chalicelib.backends.keyed:KeyBackendConfig",
        backend="chalicelib.backends.nimbus.backend:Nimbus",
        extra="nimbus",
        sdk=("{SDK}",),
        artefact="nimbus",
    ),
"""
SOLD = {"clouds": "lambda", "gcp": "gcp", "nebius": "nebius"}  # of each artefact, a cloud that sells machines
FLEET = {"type": "fleet", "name": "pool", "nodes": 1, "backends": [TYPE], "idle_duration": "off"}


def with_a_second_artefact(clone: Path) -> None:
    shutil.copytree(Path(__file__).with_name("nimbus"), clone / "chalicelib" / "backends" / "nimbus")
    for path, old, new in (
        (clone / "chalicelib" / "backends" / "registry.py", f'    "{TYPE}": Row(_KEY),\n', ROW),
        (clone / "pyproject.toml", "[project.optional-dependencies]\n", f'nimbus = ["{SDK}>=0.1"]\n'),
    ):
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new if path.suffix == ".py" else old + new))


@dataclass
class Provider:
    """Machines by id, and how often each thing was asked."""

    machines: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    url: str = ""

    def answer(self, method: str, path: str, key: str, body: bytes) -> tuple[int, str]:
        self.calls[f"{method} {path.partition('/')[0]}"] += 1
        kind, _, id_ = path.partition("/")
        if key != GOOD:
            return 401, "<error/>"
        if kind == "account":
            return 200, "<account/>"
        if kind == "types":
            one = "<name>n.4</name><cpus>4</cpus><memory>16384</memory><region>sky</region><price>0.2</price>"
            return 200, f"<types><type>{one}</type></types>"
        if method == "POST":
            order = json.loads(body)
            id_ = next((known for known, one in self.machines.items() if one["token"] == order["token"]), "")
            id_ = id_ or f"m-{len(self.machines)}"
            self.machines.setdefault(id_, order)
        if not id_:
            return 200, f"<machines>{''.join(map(self.shown, self.machines))}</machines>"
        if id_ not in self.machines:
            return 404, "<error/>"
        if method == "DELETE":
            del self.machines[id_]
            return 200, "<deleted/>"
        return 200, self.shown(id_)

    def shown(self, id_: str) -> str:
        one = self.machines[id_]
        return f"<machine><id>{id_}</id><name>{one['name']}</name><tags>{json.dumps(one['tags'])}</tags></machine>"

    def key(self, key: str = GOOD) -> dict[str, Any]:
        """A configuration. The address is in the key, as nowhere else would be one for it."""
        return {"type": TYPE, "creds": {"type": "api_key", "api_key": f"{self.url}#{key}"}}


@contextmanager
def provider() -> Iterator[Provider]:
    made = Provider()

    class Handler(BaseHTTPRequestHandler):
        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, text = made.answer(self.command, self.path.strip("/"), self.headers["X-Key"] or "", body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = do_DELETE = handle_one

        def log_message(self, format: str, *args: object) -> None:
            """Not a line for every call."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class Stage:
    one: Deployment
    nimbus: Provider

    def call(self, path: str, body: Any = None) -> Any:
        return self.one.call(f"/api/project/main/{path}", body or {})

    def refused(self, path: str, body: Any) -> dict[str, Any]:
        with pytest.raises(HttpError) as raised:
            self.call(path, body)
        assert raised.value.status == 400, raised.value
        (entry,) = json.loads(raised.value.body)["detail"]
        return dict(entry)

    def invoke(self, function: str) -> None:
        """As its schedule does."""
        functions = self.one.client("lambda")
        functions.invoke(FunctionName=f"dstack-{STAGE}-{function}", InvocationType="RequestResponse", Payload=b"{}")

    def offers(self, fleet: dict[str, Any]) -> list[dict[str, Any]]:
        """Of the fleet's only backend."""
        plan = self.call("fleets/get_plan", {"spec": {"configuration": fleet, "profile": {}}})
        return [one for one in plan["offers"] if [one["backend"]] == fleet["backends"]]

    def statuses(self) -> list[str]:
        return [one["status"] for fleet in self.call("fleets/list") for one in fleet["instances"]]
