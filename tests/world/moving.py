"""A control plane that moves between two places on the world's time, under load, with a command that is killed again
and again. Clients call an address and follow where they are told; agents follow by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from chalicelib.api.dispatch import Request
from chalicelib.api.signpost import answer as shown_way
from chalicelib.errors import Forbidden, Moved, Transient
from chalicelib.runtime.embedded import RENEW_EVERY
from chalicelib.runtime.migration.signpost import DATABASE, SignpostPorts, fenced
from chalicelib.runtime.migration.steps import Migration, Place
from chalicelib.store.blobs import FileBlobs
from chalicelib.store.fences import decides, fence_of
from chalicelib.store.log_files import FileLogs
from chalicelib.store.port import Store
from chalicelib.store.sqlite import SqliteStore
from tests.world.embedded import EmbeddedSite
from tests.world.site import Answer, Site
from tests.world.time import Time

KEY = bytes(32)


class Killed(BaseException):
    """The command was killed. No part of it may handle that."""


class Lifetime:
    """The world's time for one process: what it has scheduled ends with it, and a refused commit ends a turn, as the
    threads of a server log it and go on."""

    def __init__(self, time: Time) -> None:
        self._time, self.over = time, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._time, name)

    def after(self, delay: float, do: Callable[[], object]) -> None:
        def turn() -> None:
            if not self.over:
                with suppress(Moved):
                    do()

        self._time.after(delay, turn)

    def every(self, pause: float, do: Callable[[], object]) -> None:
        def turn() -> None:
            self.after(pause, turn)
            do()

        self.after(pause, turn)


class FolderSite(EmbeddedSite):
    """A server on a folder, in a world that has been there before it."""

    def __init__(self, world: MovingWorld, name: str, folder: Path, url: str) -> None:
        self._world, self.url = world, url
        folder.mkdir(exist_ok=True)
        for key in ("install.key", "master.key"):
            (folder / key).write_text(KEY.hex())
        super().__init__(name, folder)
        self.time.every(RENEW_EVERY, self._made.renewals.write)

    def _surround(self, cloud: str) -> None:
        self._world.surround(self, super()._surround, cloud)

    def stop(self) -> None:
        self.time.over = True  # type: ignore[attr-defined]
        self.close()


class MovingWorld:
    """What is around the control planes: time, cloud, machines, and addresses with whatever answers there."""

    def __init__(self) -> None:
        self._first: Site | None = None
        self.answers: dict[str, Callable[[str, str, Mapping[str, str], bytes], Answer]] = {}
        self._at: dict[str, str] = {}  # the address that each agent calls
        self.redirected: set[str] = set()

    def surround(self, site: Site, make: Callable[[str], None], cloud: str) -> None:
        if self._first is None:
            make(cloud)
            self._first, self.time = site, site.time
            site.network._sync = self._sync
            self._home = site.url
        else:
            first = self._first
            site.script, site.network, site.hosts, site.cloud = first.script, first.network, first.hosts, first.cloud
        site.time = Lifetime(self.time)  # type: ignore[assignment]

    def serve(self, site: Site) -> None:
        self.answers[site.url] = site.request

    def _sync(self, instance_id: str, credential: str, body: bytes) -> dict[str, Any]:
        url = self._at.get(instance_id, self._home)
        headers = {"Authorization": f"Bearer {credential}", "Content-Type": "application/json"}
        if url not in self.answers:
            raise Transient("nothing listens there")
        status, answer = self.answers[url]("POST", "/agent/sync", headers, body)
        if status == 308:
            self._at[instance_id] = orjson.loads(answer)["server"]
            self.redirected.add(instance_id)
        if status in (401, 403):
            raise Forbidden(answer.decode())
        if status != 200:
            raise Transient(answer.decode())
        found: dict[str, Any] = orjson.loads(answer)
        return found


def signpost(store: Store) -> Callable[[str, str, Mapping[str, str], bytes], Answer]:
    """What answers at the address of a folder that doesn't decide."""
    ports: Any = SignpostPorts(store, KEY)

    def answer(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        fence = fence_of(store)
        assert fence is not None and not fence.decides
        lower = {name.lower(): value for name, value in headers.items()}
        reply = shown_way(ports, fence, Request(method=method, path=path, query={}, headers=lower, body=body))
        return reply.status, reply.body

    return answer


class Server:
    """`dstack server` on a folder: whichever of its two faces the fence asks for."""

    def __init__(self, world: MovingWorld, folder: Path, url: str) -> None:
        self.world, self.folder, self.url = world, folder, url
        self.site: FolderSite | None = None
        self._starts = 0
        self._posted: SqliteStore | None = None

    def start(self) -> None:
        """Start it; or have it notice that its folder decides again, or doesn't any more."""
        if fenced(self.folder) is None:
            if self._posted is not None:
                self._posted.close()
                self._posted = None
            if self.site is None:
                self._starts += 1
                self.site = FolderSite(self.world, f"{self.folder.name}-{self._starts}", self.folder, self.url)
                self.world.serve(self.site)
            return
        if self.site is not None:
            self.site.stop()
            self.site = None
        if self._posted is None:
            self._posted = SqliteStore(self.folder / DATABASE)
            self.world.answers[self.url] = signpost(self._posted)

    def notice(self) -> None:
        """A server that only shows the way checks whether its folder decides again."""
        if self._posted is not None:
            self.start()

    def decides(self) -> bool:
        """Is it a control plane, and not fenced?"""
        if not (self.folder / DATABASE).exists():
            return False
        store = SqliteStore(self.folder / DATABASE)
        try:
            return decides(store) and bool(store.scan(limit=1))
        finally:
            store.close()

    def place(self, watched: Watched) -> Place:
        self.folder.mkdir(exist_ok=True)
        store: Any = watched.over(SqliteStore(self.folder / DATABASE))
        blobs, logs = FileBlobs(self.folder / "blobs"), FileLogs(self.folder / "logs")
        name = f"the folder {self.folder.name}"
        return Place(name, store, blobs, lambda _: logs, (KEY, KEY), self.url, self.url, self._settle)

    def _settle(self) -> None:
        if (self.folder / DATABASE).exists():
            self.start()

    def close(self) -> None:
        if self.site is not None:
            self.site.stop()
        if self._posted is not None:
            self._posted.close()


class Watched:
    """Both stores as the command has them. Each of its calls takes a moment, in which the world goes on; at the call
    `left` the command is killed, before or after that call."""

    def __init__(self, left: int, *, after: bool, passes: Callable[[], None]) -> None:
        self._left, self._after, self._passes = left, after, passes
        self.stores: list[Any] = []
        self.calls = 0

    def over(self, store: Any) -> Any:
        self.stores.append(store)
        return _Store(self, store)

    def call(self, do: Callable[..., Any], *args: Any, **more: Any) -> Any:
        self.calls += 1
        if self.calls == self._left and not self._after:
            raise Killed
        found = do(*args, **more)
        if self.calls == self._left:
            raise Killed
        self._passes()
        return found

    def close(self) -> None:
        for store in self.stores:
            store.close()


class _Store:
    def __init__(self, watched: Watched, store: Any) -> None:
        for name in ("get", "get_many", "query", "scan", "commit"):
            setattr(self, name, partial(watched.call, getattr(store, name)))
        self.due, self.next_due, self.close = store.due, store.next_due, store.close


def move(world: MovingWorld, places: Callable[[Watched], tuple[Place, Place]], passes: Callable[[], None]) -> int:
    """Move, with a command that is killed at its first call, the next one at its second, and so on, until one comes
    through. Returns how many were killed."""
    killed, numbers = 0, count()
    while True:
        watched = Watched(killed // 2 + 1, after=killed % 2 == 1, passes=passes)
        source, target = places(watched)
        try:
            Migration(source, target, world.time, lambda: f"m-{next(numbers)}", lambda _: None).run()
        except Killed:
            killed += 1
            world.time.pass_(0.2)
        else:
            return killed
        finally:
            watched.close()
