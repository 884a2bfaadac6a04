"""A door's cache of services: looked up on first use, and again after every change.

While nothing changes, a request costs no read. The call that invalidates an entry also wakes requests that wait for the
service to change.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from chalicelib.domain.serving import Served
from chalicelib.serving.ports import Services

T = TypeVar("T")
Name = tuple[str, str]  # of a project, and of a run in it
InThread = Callable[[Callable[[], T]], Awaitable[T]]
MOST = 10_000  # cached services
ATTEMPTS = 3  # to read a service that changes while it is being read


class Directory:
    """All of it is used on the event loop."""

    def __init__(
        self, services: Services, in_thread: InThread[Served | None], looked_up: Callable[[Served], None]
    ) -> None:
        self._services, self._in_thread, self._looked_up = services, in_thread, looked_up
        self._known: OrderedDict[Name, Served] = OrderedDict()
        self._names: dict[str, Name] = {}  # by run, also of entries that were dropped
        self._lookups: dict[Name, asyncio.Task[Served | None]] = {}
        self._changed: set[str] = set()  # runs that changed during a lookup
        self._waiting: dict[str, asyncio.Event] = {}  # by run

    def peek(self, name: Name) -> Served | None:
        """The cached service, without a lookup."""
        return self._known.get(name)

    async def find(self, name: Name) -> Served | None:
        """The live service of this name, as of now. Concurrent callers share one lookup."""
        if (known := self._known.get(name)) is not None:
            return known
        lookup = self._lookups.get(name)
        if lookup is None:
            lookup = self._lookups[name] = asyncio.create_task(self._lookup(name))
        return await asyncio.shield(lookup)

    async def _lookup(self, name: Name) -> Served | None:
        try:
            for _ in range(ATTEMPTS):
                found = await self._in_thread(lambda: self._services.named(*name))
                if found is None or found.run_id not in self._changed:
                    return self._keep(name, found)
                self._changed.discard(found.run_id)  # it changed while it was being read
            assert found is not None, "it changed, so it is there"
            self._looked_up(found)
            return found  # it was right a moment ago, and isn't cached
        finally:
            del self._lookups[name]
            if not self._lookups:
                self._changed.clear()

    def _keep(self, name: Name, found: Served | None) -> Served | None:
        """Cache a service. Names without a service aren't cached: there are too many of them."""
        if found is not None:
            self._known[name] = found
            self._names[found.run_id] = name
            if len(self._known) > MOST:
                self._names.pop(self._known.popitem(last=False)[1].run_id, None)
            self._looked_up(found)
        return found

    def changed(self, run_ids: Iterable[str]) -> None:
        """Drop these runs from the cache, and wake the requests that wait for them to change."""
        for run_id in run_ids:
            self._drop(run_id)
            if self._lookups:
                self._changed.add(run_id)
            if (waiting := self._waiting.pop(run_id, None)) is not None:
                waiting.set()

    def _drop(self, run_id: str) -> None:
        if (name := self._names.get(run_id)) is not None:
            self._known.pop(name, None)

    async def refresh(self, run_id: str) -> Served | None:
        """Look up a run's service without a request for it. None: it is no service any more."""
        name = self._names.get(run_id)
        if name is None:
            found = await self._in_thread(lambda: self._services.of(run_id))
            return None if found is None else await self.find((found.project_name, found.run_name))
        found = await self.find(name)
        if found is not None and found.run_id == run_id:
            return found
        self._names.pop(run_id, None)
        return None

    def change_of(self, run_id: str) -> asyncio.Event:
        """An event that is set at the run's next change."""
        return self._waiting.setdefault(run_id, asyncio.Event())

    def wake_all(self) -> None:
        for run_id in tuple(self._waiting):
            self.changed([run_id])
