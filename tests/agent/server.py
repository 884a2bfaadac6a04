"""A server that speaks the agent protocol and remembers: just enough of the plane to hold a real agent to its
contract."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from chalicelib.store.log_pages import unpacked

PATIENCE = 120.0  # seconds: two busy cores are slow


class Plane:
    """What a server knows of one instance's tasks. One condition guards it; every change wakes the waiters."""

    def __init__(self) -> None:
        self.news = threading.Condition()
        self.wants: dict[str, dict[str, Any]] = {}
        self.reports: dict[str, dict[str, Any]] = {}
        self.history: dict[str, list[str]] = {}
        self.logs: dict[str, bytes] = {}
        self.metrics: list[dict[str, Any]] = []
        self.facts: dict[str, Any] = {}
        self.health: list[dict[str, Any]] | None = None
        self.taken_back_in: float | None = None
        self.gateway: dict[str, Any] | None = None  # what the machine is to carry
        self.carried: dict[str, Any] | None = None  # what its agent says of it
        self.seen: dict[str, int] = {}  # boot -> last seq
        self.messages = 0
        self.archives: dict[str, bytes] = {}
        self.programs: dict[str, bytes] = {}  # for anybody
        self.unsaid = 0  # messages that said nothing of a gateway
        self.token, self.credential = "token", "credential"
        self.refuse = False  # answer 401 to everybody
        self.moved_to = ""  # the address of the server that has taken over
        self.gone = False
        self.poison: bytes | None = None  # output with this in it is never taken
        self.log_put: int | None = None  # bytes of output that waits, from which it is to be put at `store`
        self.store, self.objects = "", dict[str, bytes]()

    def want(self, task: str, want: str, **more: Any) -> None:
        with self.news:
            self.wants[task] = dict(more, id=task, want=want)
            self.news.notify_all()

    def forget(self) -> None:
        """From now on the agent's instance doesn't exist."""
        with self.news:
            self.gone = True
            self.news.notify_all()

    def carry(self, http: int | None = None, num: int = 0) -> None:
        """A gateway's replica there, or None any more."""
        with self.news:
            self.gateway = None if http is None else {"id": "g-1", "num": num, "http": http, "https": None}
            self.news.notify_all()

    def until(self, truth: Any, seconds: float = PATIENCE) -> Any:
        """Wait until `truth()` is true; the state of the world is the message of the failure."""
        deadline = time.monotonic() + seconds
        with self.news:
            while not (value := truth()):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"waited in vain; reports: {self.reports}, wants: {self.wants}")
                self.news.wait(min(left, 0.5))
            return value

    def exited(self, task: str, seconds: float = PATIENCE) -> dict[str, Any]:
        """The task's last report once it is over and its log is whole."""

        def complete_report() -> Any:
            report = self.reports.get(task, {})
            return report.get("state") == "exited" and len(self.logs.get(task, b"")) >= report["log_end"] and report

        return self.until(complete_report, seconds)

    def sync(self, body: dict[str, Any], bearer: str) -> tuple[int, dict[str, Any]]:
        with self.news:
            self.messages += 1
            if self.refuse or bearer not in (self.token, self.credential):
                return 401, {"detail": "who are you?"}
            if self.moved_to:
                return 308, {"server": self.moved_to}
            records = [base64.b64decode(text) for chunk in body["logs"] for _, text in chunk["records"]]
            if self.poison is not None and self.poison in b"".join(records):
                return 422, {"detail": [{"msg": "logs: this can't be taken", "code": "error"}]}
            if body["seq"] > self.seen.get(body["boot"], 0):
                self.seen[body["boot"]] = body["seq"]
                self._take(body)
                self.news.notify_all()
            before = json.dumps(self._answer(body))
            deadline = time.monotonic() + body["wait"]
            while json.dumps(self._answer(body)) == before and not self._pressing(body):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self.news.wait(left)
            answer = self._answer(body)
            if bearer == self.token:
                answer["credential"] = self.credential
            return 200, answer

    def _take(self, body: dict[str, Any]) -> None:
        self.facts = body.get("facts") or self.facts
        self.health = body.get("health", self.health)
        self.taken_back_in = body.get("taken_back_in", self.taken_back_in)
        self.carried = body.get("gateway")
        self.unsaid += self.carried is None
        for report in body["tasks"]:
            self.reports[report["id"]] = report
            history = self.history.setdefault(report["id"], [])
            if not history or history[-1] != report["state"]:
                history.append(report["state"])
        for gone in set(self.reports) - {report["id"] for report in body["tasks"]}:
            self.wants.pop(gone, None) if self.wants.get(gone, {}).get("want") == "remove" else None
        for chunk in body["logs"]:
            held = self.logs.setdefault(chunk["task"], b"")
            data = b"".join(base64.b64decode(text) for _, text in chunk["records"])
            if chunk["offset"] <= len(held):
                self.logs[chunk["task"]] = held + data[len(held) - chunk["offset"] :]
        for made in body.get("chunks") or ():
            if made["stored"]:
                self.logs[made["task"]] = b"".join(part for _, _, part in unpacked(self.objects[made["task"]], 0))
        self.metrics += body["metrics"]

    def _pressing(self, body: dict[str, Any]) -> bool:
        listed = {report["id"]: report for report in body["tasks"]}
        return (
            self.gone
            or bool(self._offers(body))
            or any(
                want["want"] != "run" if task in listed else want["want"] == "run" for task, want in self.wants.items()
            )
        )

    def _offers(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        made = [each["task"] for each in body.get("chunks") or () if not each["stored"]]
        return [{"task": task, "url": f"{self.store}/{task}?signed", "headers": {"x-of": task}} for task in made]

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        listed = {report["id"] for report in body["tasks"]}
        tasks = [
            {key: value for key, value in want.items() if key != "spec" or task not in listed}
            for task, want in self.wants.items()
        ]
        answer: dict[str, Any] = {"tasks": tasks, "next_sync_in": 0, "seq": body["seq"]}
        answer["logs"] = [{"task": task, "offset": len(self.logs.get(task, b""))} for task in listed]
        if self.log_put is not None:
            answer |= {"log_put": self.log_put, "uploads": self._offers(body)}
        if self.gateway is not None:
            answer["gateway"] = self.gateway
        return dict(answer, error="gone") if self.gone else answer


class Handler(BaseHTTPRequestHandler):
    plane: ClassVar[Plane]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, answer = self.plane.sync(body, self.headers["Authorization"].removeprefix("Bearer "))
        self._send(status, json.dumps(answer).encode(), "application/json")

    def do_GET(self) -> None:
        if self.path in self.plane.programs:
            self._send(200, self.plane.programs[self.path], "application/octet-stream")
            return
        bearer = self.headers["Authorization"].removeprefix("Bearer ")
        data = self.plane.archives.get(self.path) if bearer == self.plane.credential else None
        self._send(200 if data is not None else 404, data or b"no such archive", "application/x-tar")

    def do_PUT(self) -> None:
        """As a store of objects does, whose addresses are signed with their headers."""
        data = self.rfile.read(int(self.headers["Content-Length"]))
        task, _, query = self.path.lstrip("/").partition("?")
        good = (query, self.headers["x-of"]) == ("signed", task)
        if good:
            self.plane.objects[task] = data
        self._send(200 if good else 403, b"", "application/xml")

    def _send(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


class Server(ThreadingHTTPServer):
    """A Plane on a port. `stop` forgets every open connection, as a killed process does."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, plane: Plane, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), type("PlaneHandler", (Handler,), {"plane": plane}))
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self._sockets: list[Any] = []
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def get_request(self) -> Any:
        request = super().get_request()
        self._sockets.append(request[0])
        return request

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The agent was killed in the middle of a request: that is what these tests do."""

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        for sock in self._sockets:
            try:
                sock.shutdown(2)
            except OSError:
                continue  # closed already
