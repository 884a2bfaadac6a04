"""The server's own door for the suite: on a real port, with its real connections, and services that a test sets."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn

from chalicelib.domain.instants import Micros
from chalicelib.domain.services import Traffic
from chalicelib.domain.serving import CallerVerdict, Served
from chalicelib.runtime.addresses import listen
from chalicelib.runtime.connection import HttpConnection
from chalicelib.serving.door import Door, DoorSettings
from chalicelib.serving.ports import Receive, Scope, Send
from tests.harness.server import PATIENCE, until
from tests.serving.door import own_memory


class Known:
    """The ports of the door: services, rights, and where reports go."""

    def __init__(self) -> None:
        self.services: dict[tuple[str, str], Served] = {}
        self.away: dict[tuple[str, str], str] = {}  # addresses of those that have another door
        self.projects: dict[str, frozenset[str]] = {}
        self.by_run: dict[str, Traffic] = {}
        self.reports = 0

    def named(self, project: str, run: str) -> Served | None:
        return self.services.get((project, run))

    def elsewhere(self, project: str, run: str) -> str:
        return self.away.get((project, run), "")

    def of(self, run_id: str) -> Served | None:
        return next((each for each in self.services.values() if each.run_id == run_id), None)

    def with_models(self, project: str) -> list[Served]:
        return [each for each in self.services.values() if each.project_name == project and each.model is not None]

    def member(self, token: str, project: str, run: str) -> CallerVerdict:
        return CallerVerdict(allowed=project in self.projects.get(token, frozenset()))

    def report(self, traffic: Sequence[Traffic]) -> None:
        self.reports += 1
        self.by_run.update((each.run_id, each) for each in traffic)


class EmbeddedDoor:
    def __init__(self, known: Known, door: Door, address: tuple[str, int]) -> None:
        self._known, self._door, self.address = known, door, address

    def serve(self, *services: Served) -> None:
        before = {each.run_id for each in self._known.services.values()}
        self._known.services = {(each.project_name, each.run_name): each for each in services}
        now = {each.run_id for each in services}
        self._done(lambda: self._door.changed(before | now, refresh=now))

    def allow(self, token: str, *projects: str) -> None:
        self._known.projects[token] = frozenset(projects)
        self._done(self._door.rights_changed)

    def host_of(self, service: Served) -> str:
        return f"{service.run_name}.{service.project_name}.localhost"

    def models_of(self, project: str) -> tuple[str, str]:
        return "127.0.0.1", f"/proxy/models/{project}/"

    def traffic(self, service: Served) -> Traffic | None:
        def report() -> None:
            self._known.report(self._door.pending_traffic())

        self._done(report)
        return self._known.by_run.get(service.run_id)

    def memory(self) -> int:
        return own_memory()

    def _done(self, work: object) -> None:
        """Do it on the event loop, and wait until it is done."""
        over = threading.Event()

        def run() -> None:
            work()  # type: ignore[operator]
            self._door.loop.call_soon(over.set)

        self._door.loop.call_soon_threadsafe(run)
        assert over.wait(PATIENCE)


def micros() -> Micros:
    return time.time_ns() // 1000


@contextmanager
def opened(
    settings: DoorSettings | None = None, known: Known | None = None, loop: str = "auto", **more: Any
) -> Iterator[EmbeddedDoor]:
    """`loop`: as uvicorn names them; "auto" is what `dstack server` runs on. `more`: what `Door` takes."""
    known = known or Known()
    door = Door(known, known, known.report, micros, settings=settings or DoorSettings(hold=600.0), **more)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        place = door.place(scope)
        if place is not None:
            await door.serve(place, scope, receive)
            return
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    listener = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        app,
        http=HttpConnection,
        loop=loop,
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )
    server = uvicorn.Server(config)

    def work() -> None:
        async def main() -> None:
            door.bind()
            await server.serve(sockets=[listener])
            await door.closed()

        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(main())

    thread = threading.Thread(target=work)
    thread.start()
    try:
        until("the door to open", lambda: server.started)
        yield EmbeddedDoor(known, door, listener.getsockname())
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
