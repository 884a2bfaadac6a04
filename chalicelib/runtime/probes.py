"""What whoever runs the embedded server asks it: is it alive (`/healthz`), and can it do its work (`/readyz`)?

Neither needs a token. The first is answered by the event loop alone, so only a server that must be restarted fails it.
The second runs checks on a thread of its own, at most once a second, so that it waits for nobody's requests.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from chalicelib.api.dispatch import HEAD, READ, Reply, wrong_method
from chalicelib.domain import keys
from chalicelib.errors import DstackError
from chalicelib.store.port import Store

log = logging.getLogger(__name__)

ALIVE, READY = "/healthz", "/readyz"
FRESH = 1.0  # seconds for which a result is valid
PATIENCE = 2.0  # seconds that a request waits for the checks
LEAST_FREE = 64 * 2**20  # bytes of the data folder's disk; with less, the server is about to refuse to write
_HEADERS = {"content-type": "application/json", "cache-control": "no-store"}

Check = Callable[[], str]  # why this isn't ready; empty if it is


class Daemon(Executor):
    """A thread for the checks of one time, which are never two at once. A check that hangs doesn't keep the process
    from ending."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        done: Future[Any] = Future()

        def run() -> None:
            try:
                done.set_result(work(*args, **more))
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=run, name="readiness", daemon=True).start()
        return done


class Probes:
    def __init__(
        self,
        checks: Mapping[str, Check],
        *,
        thread: Executor | None = None,
        clock: Callable[[], float] = time.monotonic,
        patience: float = PATIENCE,
        epoch: int | None = None,
    ) -> None:
        """`epoch`: of a server of a pair, which decides."""
        self._alive = {"alive": True} if epoch is None else {"alive": True, "role": "decides", "epoch": epoch}
        self._checks, self._clock, self._patience = checks, clock, patience
        self._thread = thread or Daemon()
        self._why: dict[str, str] = {}
        self._at = ""  # the check that is running
        self._begun = float("-inf")
        self._reading: asyncio.Future[None] | None = None

    async def reply(self, method: str, path: str) -> Reply | None:
        """The response; None for a path that is no probe's."""
        if path not in (ALIVE, READY):
            return None
        if method not in (READ, HEAD):
            return wrong_method(method, path, [READ])
        return Reply(200, _HEADERS, orjson.dumps(self._alive)) if path == ALIVE else await self._ready()

    async def _ready(self) -> Reply:
        loop = asyncio.get_running_loop()
        if self._reading is None or (self._reading.done() and self._clock() - self._begun >= FRESH):
            self._begun = self._clock()
            self._reading = loop.run_in_executor(self._thread, self._read)
        await asyncio.wait((self._reading,), timeout=self._patience)
        why = dict(self._why)
        if not self._reading.done():
            why[self._at or next(iter(self._checks))] = f"It hasn't answered for {self._clock() - self._begun:.0f} s."
        checks = [{"name": name, "ready": not why.get(name), "why": why.get(name, "")} for name in self._checks]
        ready = not any(why.values())
        return Reply(200 if ready else 503, _HEADERS, orjson.dumps({"ready": ready, "checks": checks}))

    def _read(self) -> None:
        for name, check in self._checks.items():
            self._at = name
            self._why[name] = problem(name, check)


def problem(name: str, check: Check) -> str:
    """Why this isn't ready; empty if it is."""
    try:
        return check()
    except DstackError as error:
        return str(error)
    except Exception as error:
        log.exception("the check of the %s failed", name)
        return f"It failed with {type(error).__name__}; the server's log has the cause."


def checks_of(
    stopping: Callable[[], bool], store: Store, folder: Path, reconciler: Check, lease: Check | None = None
) -> Mapping[str, Check]:
    """What must work for a server to do its work. `lease`: of a server of a pair."""

    def server() -> str:
        return "The server is stopping." if stopping() else ""

    def reads() -> str:
        store.get(keys.project_name("main"))
        return ""

    found: dict[str, Check] = {
        "server": server,
        "store": reads,
        "disk": partial(disk_problem, folder),
        "reconciler": reconciler,
    }
    return found if lease is None else {**found, "lease": lease}


def disk_problem(folder: Path, free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free) -> str:
    left = free(folder)
    if left >= LEAST_FREE:
        return ""
    return f"The data folder's disk has {left // 2**20} MB left; the server needs {LEAST_FREE // 2**20}."
