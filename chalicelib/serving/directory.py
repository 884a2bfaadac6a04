"""The services that a door knows: looked up when they are first asked for, and again after every change.

Nothing is asked while nothing changes, so a request costs no read. Whoever waits for a service to change is woken by
the same call that makes the door forget what it knew.
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
Aside = Callable[[Callable[[], T]], Awaitable[T]]
MOST = 10_000  # services that are remembered
LOOKS = 3  # at a service that changes each time while it is being read


class Directory:
    """All of it is used on the event loop."""

    def __init__(self, services: Services, aside: Aside[Served | None], looked_up: Callable[[Served], None]) -> None:
        self._services, self._aside, self._looked_up = services, aside, looked_up
        self._known: OrderedDict[Name, Served] = OrderedDict()
        self._names: dict[str, Name] = {}  # of runs that were known once
        self._looks: dict[Name, asyncio.Task[Served | None]] = {}
        self._changed: set[str] = set()  # runs that changed while somebody looks
        self._waiting: dict[str, asyncio.Event] = {}  # by run

    def peek(self, name: Name) -> Served | None:
        """What is known without looking."""
        return self._known.get(name)

    async def find(self, name: Name) -> Served | None:
        """The live service of this name, as of now. Many may ask at once: they share one look."""
        if (known := self._known.get(name)) is not None:
            return known
        look = self._looks.get(name)
        if look is None:
            look = self._looks[name] = asyncio.create_task(self._look(name))
        return await asyncio.shield(look)

    async def _look(self, name: Name) -> Served | None:
        try:
            for _ in range(LOOKS):
                found = await self._aside(lambda: self._services.named(*name))
                if found is None or found.run_id not in self._changed:
                    return self._keep(name, found)
                self._changed.discard(found.run_id)  # it changed while it was being read
            assert found is not None, "it changed, so it is there"
            self._looked_up(found)
            return found  # right a moment ago: whoever asks next looks again
        finally:
            del self._looks[name]
            if not self._looks:
                self._changed.clear()

    def _keep(self, name: Name, found: Served | None) -> Served | None:
        """A name that isn't one of a service isn't kept: there are too many of them."""
        if found is not None:
            self._known[name] = found
            self._names[found.run_id] = name
            if len(self._known) > MOST:
                self._names.pop(self._known.popitem(last=False)[1].run_id, None)
            self._looked_up(found)
        return found

    def changed(self, run_ids: Iterable[str]) -> None:
        """Forget what was known of these runs, and wake whoever waits for them to change."""
        for run_id in run_ids:
            self._drop(run_id)
            if self._looks:
                self._changed.add(run_id)
            if (waiting := self._waiting.pop(run_id, None)) is not None:
                waiting.set()

    def _drop(self, run_id: str) -> None:
        if (name := self._names.get(run_id)) is not None:
            self._known.pop(name, None)

    async def look_again(self, run_id: str) -> Served | None:
        """A run about which something is to be known though nobody asks for it. None: it is no service any more."""
        name = self._names.get(run_id)
        if name is None:
            found = await self._aside(lambda: self._services.of(run_id))
            return None if found is None else await self.find((found.project_name, found.run_name))
        found = await self.find(name)
        if found is not None and found.run_id == run_id:
            return found
        self._names.pop(run_id, None)
        return None

    def change_of(self, run_id: str) -> asyncio.Event:
        """Set when the run changes next."""
        return self._waiting.setdefault(run_id, asyncio.Event())

    def wake_all(self) -> None:
        for run_id in tuple(self._waiting):
            self.changed([run_id])
