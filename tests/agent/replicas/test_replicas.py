"""What is told of the replicas of a machine, with real servers on loopback."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from chalicelib.agent.replicas.replicas import WatchedReplicas
from chalicelib.agent.replicas.watched_replica import WatchedPort
from tests.harness.ports import free_port
from tests.harness.server import until

PATIENCE = 120.0


class Runtime:
    """Everything is in the machine's own network, as it is for plain processes."""

    def __init__(self) -> None:
        self.runs, self.direct_address, self.calls = True, "", 0
        self.pid: int | None = None

    def of(self, task: str) -> tuple[Any, Any]:
        self.calls += 1
        if not self.runs:
            raise OSError("the job doesn't run")
        return self, None

    def network(self, folder: Any) -> int | None:
        return self.pid

    def address(self, folder: Any) -> str:
        return self.direct_address


class App(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1000

    def __init__(self, port: int = 0) -> None:
        self.health, self.metrics, self.calls = 200, "", []  # type: ignore[var-annotated]
        super().__init__(("127.0.0.1", port), Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    server: App

    def do_GET(self) -> None:
        self.server.calls.append(self.path)
        bodies = {"/metrics": self.server.metrics, "/workers": '{"workers": []}'}
        body = bodies.get(self.path, "").encode()
        self.send_response(200 if self.path == "/metrics" else self.server.health)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


class Seen:
    """The last report of each task, as an agent would send it."""

    def __init__(self) -> None:
        self.runtime, self.changed = Runtime(), threading.Condition()
        self.changes: list[tuple[str, dict[str, Any]]] = []
        self.log: list[str] = []
        self.replicas = WatchedReplicas(self.runtime.of, self._change, self.log.append)

    def _change(self, task: str) -> None:
        with self.changed:
            self.changes.append((task, self.replicas.report(task)))
            self.changed.notify_all()

    def until(self, **report: Any) -> None:
        def there() -> bool:
            return any(report.items() <= change.items() for _, change in self.changes)

        with self.changed:
            assert self.changed.wait_for(there, PATIENCE), (report, self.changes, self.log)


@pytest.fixture
def seen() -> Iterator[Seen]:
    made = Seen()
    yield made
    made.replicas.close()
    assert not made.log, made.log


@pytest.fixture
def app() -> Iterator[App]:
    made = App()
    yield made
    made.stop()


def launch(port: int, host_port: int | None = None, **spec: Any) -> dict[str, Any]:
    return {"host_port": host_port, "spec": {"service_port": port, **spec}}


def test_a_replica_that_listens_is_told_with_its_probes(seen: Seen, app: App) -> None:
    probes = [{"url": "/a", "interval": 1, "ready_after": 1}, {"url": "/b", "interval": 60, "ready_after": 2}]
    seen.replicas.watch("t", lambda: launch(1, app.server_port, probes=probes))
    seen.until(listens=True, probes=[1, 1], host_port=app.server_port)
    assert {"/a", "/b"} <= set(app.calls)
    app.health = 503
    seen.until(probes=[0, 1])
    assert ("t", {"listens": True, "host_port": app.server_port}) == seen.changes[0], "before any probe was answered"


def test_one_that_doesnt_listen_yet_is_asked_again_and_its_probes_wait(seen: Seen) -> None:
    port = free_port()
    seen.replicas.watch("t", lambda: launch(port, probes=[{"url": "/", "interval": 60}]))
    assert seen.replicas.report("t") == {"listens": False}
    app = App(port)
    try:
        seen.until(listens=True, probes=[1])
        assert app.calls == ["/"]
    finally:
        app.stop()


def test_what_waits_in_its_engine_is_told_when_it_changes(seen: Seen, app: App) -> None:
    app.metrics = 'vllm:num_requests_waiting{engine="0"} 3.0\nvllm:num_requests_waiting{engine="1"} 4.0\n'
    seen.replicas.watch("t", lambda: launch(app.server_port, queue=True))
    seen.until(listens=True, queue=7)
    assert app.calls == ["/metrics"]


def test_a_router_is_asked_which_workers_it_has_once_its_own_are_known(seen: Seen, app: App) -> None:
    seen.replicas.watch("r", lambda: launch(app.server_port, router={"type": "sglang"}))
    assert seen.replicas.route("r", "these", [])
    seen.until(listens=True, workers="these", cleared="these")
    assert app.calls == ["/workers"]


def test_what_fails_in_looking_after_one_is_logged_and_the_others_go_on(seen: Seen, app: App) -> None:
    seen.replicas.watch("bad", lambda: launch(app.server_port, probes=[{"interval": "often"}]))
    until("it to be logged", lambda: seen.log)
    assert seen.log.pop().startswith("following a replica failed: ValueError(") and not seen.log
    seen.replicas.watch("good", lambda: launch(app.server_port, probes=[{"url": "/", "interval": 60}]))
    seen.until(probes=[1])


def test_nobody_is_asked_for_what_isnt_wanted(seen: Seen, app: App) -> None:
    seen.replicas.watch("t", lambda: launch(app.server_port, probes=[{"url": "/only", "interval": 60}]))
    seen.until(probes=[1])
    assert app.calls == ["/only"]


def test_a_task_of_no_service_starts_nothing(seen: Seen) -> None:
    before = {*threading.enumerate()}
    seen.replicas.watch("t", lambda: {"spec": {}})
    seen.replicas.watch("t", lambda: pytest.fail("it is known"))
    assert seen.replicas.report("t") == {} and seen.replicas.port("t", 80) is None
    seen.replicas.forget("t")
    assert {*threading.enumerate()} <= before


def test_one_that_has_ended_is_asked_nothing_more_and_leads_nowhere(seen: Seen, app: App) -> None:
    seen.replicas.watch("t", lambda: launch(app.server_port, probes=[{"url": "/", "interval": 1}]))
    seen.until(probes=[1])
    port = seen.replicas.port("t", app.server_port)
    assert port is not None
    port.connect().close()
    seen.replicas.forget("t")
    with pytest.raises(OSError, match="has ended"):
        port.connect()
    assert seen.replicas.report("t") == {}


def test_its_network_is_looked_up_once(seen: Seen, app: App) -> None:
    port = WatchedPort("t", app.server_port, seen.runtime.of)
    for _ in range(3):
        port.connect().close()
    assert seen.runtime.calls == 1
    port.close()


def test_an_address_is_told_only_if_it_leads_to_the_replica(seen: Seen, app: App) -> None:
    port = WatchedPort("t", app.server_port, seen.runtime.of)
    assert port.direct_address() == "", "it has none"
    seen.runtime.direct_address = "127.0.0.1"
    assert port.direct_address() == "", "in the machine's own network it needs none"
    seen.runtime.pid = os.getpid()
    assert port.direct_address() == "127.0.0.1"
    seen.runtime.direct_address = "127.0.0.77"  # it listens elsewhere only
    assert port.direct_address() == ""
    seen.runtime.direct_address, seen.runtime.pid = "127.0.0.1", 2**22 + 1  # what answers there is another's
    assert port.direct_address() == ""


@pytest.mark.slow
def test_hundreds_of_probes_take_no_more_threads(seen: Seen, app: App) -> None:
    app.health = 200
    probes = [{"url": f"/{n}", "interval": 60} for n in range(10)]
    for task in range(30):
        seen.replicas.watch(str(task), lambda: launch(app.server_port, probes=probes))
    with seen.changed:
        assert seen.changed.wait_for(
            lambda: all(seen.replicas.report(str(task)).get("probes") == [1] * 10 for task in range(30)), PATIENCE
        )
    assert sum(thread.name.startswith("replicas") for thread in threading.enumerate()) <= 9
