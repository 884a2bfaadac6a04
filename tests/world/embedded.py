"""`dstack server` on the world's time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from chalicelib.api import dispatch
from chalicelib.backends.simulated.cloud import FACTS
from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.planning.kernel.plan import Effect
from chalicelib.runtime.asgi import AsgiBridge
from chalicelib.runtime.embedded import REFRESH_EVERY, SWEEP_EVERY, EmbeddedRoot
from chalicelib.runtime.lanes import Lane
from chalicelib.runtime.provider_threads import ProviderThreads
from chalicelib.runtime.root import Root
from chalicelib.runtime.settings import ServerSettings
from chalicelib.usecases.agents.calls import has_news
from chalicelib.usecases.operator.first_start import first_start
from tests.world.site import ADMIN, HOP, Answer, Site


class Inline(Executor):
    """A pool without threads: work is done when submitted."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*args, **more))
        except Exception as error:
            done.set_exception(error)
        return done


@dataclass(kw_only=True)
class FakeWire:
    """The connection of one request: what it is answered."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    answer: bytes = b""

    def recognised(self) -> None:
        return

    def begin(self, status: int, headers: Sequence[tuple[bytes, bytes]], *, goes_on: bool) -> None:
        self.status, self.headers = status, dict(headers)

    async def part(self, part: bytes, *, last: bool, drained: bool = False) -> None:
        self.answer += part

    def leave(self) -> None:
        return

    async def send(self, message: Any) -> None:
        raise AssertionError(f"{message['type']} went past the connection")


class EmbeddedSite(Site):
    """`dstack server`: its root, not started, and its ASGI app. The world's time replaces the reconciler's thread and
    the pool of effects."""

    long_poll = True

    def __init__(self, name: str, folder: Path, cloud: str = FACTS.name) -> None:
        super().__init__(name, cloud)
        folder.mkdir(exist_ok=True)
        settings = ServerSettings(data_dir=folder)
        self._made = EmbeddedRoot(settings, ServerConfig(projects=()), self.url, clock=self.time)
        work = ProviderThreads(lambda: self.root)  # which isn't started either
        self.root = self._here(
            self._made, wake=self._wake, effects=self, account_work=work, notify_agents=self.network.ring
        )
        first_start(self.root.plane, ADMIN)
        serve, refusal = partial(dispatch.respond, self.root.plane), partial(dispatch.refusal, self.root.plane)
        lane = Lane(Inline(), 1, body=settings.limits.body, memory=2 * settings.limits.body)
        self._bridge = AsgiBridge(serve, refusal, lane, lane, self._made.polls, has_news=has_news)
        self._asyncio = asyncio.new_event_loop()
        self._hints: set[str] = set()
        self._next_pass = float("inf")
        self.root.refresh_accounts()
        self.time.every(SWEEP_EVERY, self.root.sweep_accounts)
        self.time.every(REFRESH_EVERY, self.root.refresh_accounts)
        self._wake(())

    def close(self) -> None:
        self._asyncio.close()
        self._made.close()

    def _wake(self, units: Iterable[str]) -> None:
        self._hints.update(units)
        self._pass_at(self.time.at + HOP * SECOND)

    def _pass_at(self, at: float) -> None:
        """At most one pass is scheduled; an earlier one replaces a later one."""
        if at >= self._next_pass:
            return
        self._next_pass = at

        def go() -> None:
            if self._next_pass == at:
                self._next_pass = float("inf")
                hints, self._hints = self._hints, set()
                self.root.reconciler.run(hints)
                due = self.root.ports.store.next_due()
                latest = self.time.at + MINUTE
                self._pass_at(latest if due is None else min(max(due, self.time.at + HOP * SECOND), latest))

        self.time.after((at - self.time.at) / SECOND, go)

    def submit(self, effect: Effect) -> None:
        self.time.after(HOP, lambda: self.root.executor.execute(effect))

    def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        # The world's network holds agents' calls, on its time, so the app itself mustn't wait.
        if path == "/agent/sync":
            body = json.dumps({**json.loads(body), "wait": 0}).encode()
        return self._asyncio.run_until_complete(self._request(method, path, headers, body))

    async def _request(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        parts, wire = urlsplit(path), FakeWire()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        scope = {
            "type": "http",
            "method": method,
            "path": parts.path,
            "query_string": parts.query.encode(),
            "headers": [
                *((name.lower().encode(), value.encode()) for name, value in headers.items()),
                (b"content-length", str(len(body)).encode()),
            ],
            "state": {"connection": wire},
        }
        await self._bridge(scope, receive, wire.send)
        return wire.status, wire.answer


class ConfiguredSite(EmbeddedSite):
    """Its accounts are those that its projects configure, and no others."""

    def _here(self, root: Root, **ports: Any) -> Root:
        return Root(replace(root.ports, random_id=self._id, random_token=self._id, **ports))
