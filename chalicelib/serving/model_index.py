"""An index of the services that have a model, by project: read once, and then updated run by run.

A service's model never changes, so each run is read only once; the directory knows whether it is live. While nothing
changes, a request reads nothing, and a run that isn't a service is never read again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from chalicelib.domain.serving import Served
from chalicelib.serving.directory import Directory
from chalicelib.serving.ports import Services

MOST = 10_000  # ids of runs that were indexed
MOST_PENDING = 100  # changed runs that wait to be indexed


class ModelIndex:
    """All methods are called on the event loop. `in_thread` makes a call on a thread."""

    def __init__(
        self, services: Services, directory: Directory, in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]
    ) -> None:
        self._services, self._directory, self._in_thread = services, directory, in_thread
        self._requested: set[str] = set()  # projects that were requested
        self._runs: dict[str, set[str]] = {}  # names of runs with a model, by project
        self._indexed: OrderedDict[str, None] = OrderedDict()  # ids of runs that were read
        self._new: set[str] = set()  # ids of runs to read
        self._reading = asyncio.Lock()

    def changed(self, run_ids: Iterable[str]) -> None:
        if self._requested:
            self._new.update(run_id for run_id in run_ids if run_id not in self._indexed)
        if len(self._new) > MOST_PENDING:  # each costs the next request a read: reading the project again costs less
            self._new.clear()
            self._runs.clear()

    async def of(self, project: str) -> list[Served]:
        """The live services of this project that have a model."""
        if self._new or project not in self._runs or self._reading.locked():
            async with self._reading:
                await self._read(project)
        live, runs = [], self._runs[project]
        for run in sorted(runs):
            name = project, run
            service = self._directory.peek(name) or await self._directory.find(name)
            if service is not None and service.model is not None:
                live.append(service)
            else:
                runs.discard(run)
        return live

    async def _read(self, project: str) -> None:
        self._requested.add(project)
        while self._new:
            await self._index_run(self._new.pop())
        if project not in self._runs:
            found = await self._in_thread(lambda: self._services.with_models(project))
            self._runs[project] = {each.run_name for each in found}

    async def _index_run(self, run_id: str) -> None:
        found = await self._in_thread(lambda: self._services.of(run_id))
        self._indexed[run_id] = None
        if len(self._indexed) > MOST:
            self._indexed.popitem(last=False)
        if found is not None and found.model is not None and found.project_name in self._runs:
            self._runs[found.project_name].add(found.run_name)
