"""The processes that run the product: two reconcilers with their executors, and the API. Each may die at any moment."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from chalicelib.backends.fake import FACTS, FakeCloud, Launcher
from chalicelib.backends.fake_parts.script import Call, Fault, Script, When
from chalicelib.backends.spi import Backend, CreateRequest, Machine, Owned
from chalicelib.catalog.offers import StoredCatalog
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.offers import Offer
from chalicelib.engine.decisions import Decisions
from chalicelib.engine.execute import Executor
from chalicelib.engine.load import Loader
from chalicelib.engine.reconcile import Reconciler
from chalicelib.planning.plan import Effect
from chalicelib.store.log_blobs import BlobLogs
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Change, Due, Index, Key, Page, Record, Store
from chalicelib.store.seal import Sealer
from chalicelib.usecases import agent
from chalicelib.usecases.context import Plane
from tests.simulation.world import Crash, Violation, World

INSTALL = "simulation"
TICK = 60.0  # seconds: the schedule that needs no hint
MOST_UNITS = 400  # in one pass: more is a pass that feeds itself


@dataclass(frozen=True)
class Parts:
    """The parts that a planted bug replaces."""

    decisions: Decisions = field(default_factory=Decisions)
    executor: type[Executor] = Executor
    loader: type[Loader] = Loader
    sync: Callable[..., dict[str, object]] = agent.sync


class Blobs:
    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def put(self, name: str, data: bytes) -> None:
        self._kept[name] = data

    def get(self, name: str) -> bytes | None:
        return self._kept.get(name)

    def delete(self, name: str) -> None:
        self._kept.pop(name, None)

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        return sorted(name for name in self._kept if name.startswith(prefix) and name > after)[:limit]


class ShakyStore:
    """The store as one process sees it: it may die, or be overtaken, before and after every commit."""

    def __init__(self, store: MemoryStore, world: World) -> None:
        self._store, self._world = store, world

    def get(self, key: Key) -> Record | None:
        return self._store.get(key)

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        return self._store.get_many(keys)

    def query(
        self,
        index: Index,
        partition: str,
        *,
        low: str = "",
        high: str = "",
        limit: int = 100,
        cursor: str | None = None,
        reverse: bool = False,
    ) -> Page:
        return self._store.query(index, partition, low=low, high=high, limit=limit, cursor=cursor, reverse=reverse)

    def commit(self, changes: Sequence[Change]) -> None:
        self._world.moment("before a commit")
        self._store.commit(changes)
        self._world.moment("after a commit")

    def due(self, kind: str, shard: int, now: Micros, limit: int) -> list[Due]:
        return self._store.due(kind, shard, now, limit)

    def next_due(self) -> Micros | None:
        return 0

    def close(self) -> None:
        """Belongs to the world."""


class ShakyScript(Script):
    """A cloud that fails as the seed has it."""

    world: World

    def fault(self, call: Call, when: When, *, region: str = "", type: str = "") -> Exception | None:
        world = self.world
        if call in ("check", "offers") or not world.chance(0.10 if call == "create" else 0.05):
            return None
        errors = ["Transient", "Throttled"]
        if call == "create" and when != "after":
            errors += ["InsufficientCapacity", "InsufficientCapacity", "QuotaExceeded", "Bug"]
        error = "Transient" if when == "after" else world.rng.choice(errors)
        world.note(f"{call} {error} {when}")
        return Fault(call, error, when, retry_after=world.some(1, 20)).make()

    def take(self, what: str) -> bool:
        if self.world.chance(0.1):
            self.world.note(what)
            return True
        return False


class ShakyBackend:
    """The cloud as one process sees it: it may die, or stand still, before and after every call."""

    def __init__(self, cloud: FakeCloud, world: World, check: Callable[[], None]) -> None:
        self.facts: BackendFacts = cloud.facts
        self._cloud, self._world, self._check = cloud, world, check

    def check(self) -> None:
        self._cloud.check()

    def offers(self) -> Sequence[Offer]:
        return self._cloud.offers()

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        self._world.moment("before create")
        for handle in self._cloud.create(request):
            self._check()
            self._world.moment("between handles")
            yield handle
        self._world.moment("after create")

    def describe(self, handles: Sequence[Handle]) -> Machine:
        self._world.moment("before describe")
        return self._cloud.describe(handles)

    def terminate(self, handle: Handle) -> None:
        self._world.moment("before terminate")
        self._cloud.terminate(handle)
        self._world.moment("after terminate")

    def list_owned(self, instance_id: str | None = None) -> Iterator[Owned]:
        found = list(self._cloud.list_owned(instance_id))
        self._world.moment("after list")
        return iter(found)

    def close(self) -> None:
        self._cloud.close()


class Process:
    """One reconciler with its executor. What it holds in memory dies with it."""

    def __init__(self, site: Site, name: str) -> None:
        self.site, self.world, self.name = site, site.world, name
        self.generation = 0
        self._busy = False
        self._boot()
        self.world.after(self.world.some(0, TICK), self._tick)

    def _boot(self) -> None:
        site, parts = self.site, self.site.parts
        self.generation += 1
        self._hints: dict[str, None] = {}
        self._planned = False
        store: Store = ShakyStore(site.store, self.world)
        load = parts.loader(store, site.catalog, site.facts)
        self.reconciler = Reconciler(
            store,
            self.world,
            wake=site.wake,
            news=site.ring,
            effects=self,
            catalog=site.catalog,
            facts=site.facts,
            decisions=parts.decisions,
            load=load,
        )
        self.executor = parts.executor(
            store,
            self.world,
            {FACTS.name: site.backend},
            install_id=INSTALL,
            install_key=site.plane.install_key,
            wake=site.wake,
            server_url="http://plane",
            news=site.ring,
            decisions=parts.decisions,
        )

    def wake(self, units: Iterable[str]) -> None:
        self._hints.update(dict.fromkeys(units))
        if not self._planned:
            self._planned = True
            self._later(self.world.some(0.01, 0.5), self._pass)

    def submit(self, effect: Effect) -> None:
        delay = self.world.some(5, 90) if self.world.chance(0.05) else self.world.some(0, 0.5)
        self._later(delay, lambda: self.executor.execute(effect))

    def _tick(self) -> None:
        self.wake(())
        self.world.after(TICK, self._tick)

    def _pass(self) -> None:
        hints, self._hints, self._planned = list(self._hints), {}, False
        done = self.reconciler.run(hints)
        if done.failed:
            raise Violation(f"a pass failed: {done.failed}")
        if done.units > MOST_UNITS:
            raise Violation(f"one pass looked at {done.units} units")

    def _later(self, delay: float, do: Callable[[], None]) -> None:
        generation = self.generation

        def run() -> None:
            if generation != self.generation:
                return  # it was in the memory of a process that died
            if self._busy:
                self.world.after(0.2, run)  # it stands still in the middle of something
                return
            self._busy = True
            try:
                do()
            except Crash:
                self._boot()
            finally:
                self._busy = False

        self.world.after(delay, run)


class Site:
    """The whole control plane: store, cloud, catalogue, processes."""

    def __init__(self, world: World, parts: Parts, launcher: Launcher, check: Callable[[], None]) -> None:
        self.world, self.parts = world, parts
        rng = world.rng
        self.store = MemoryStore(
            clock=world.now, rng=random.Random(rng.random()), max_lag=rng.choice((0, 2 * SECOND, 10 * SECOND))
        )
        lag = rng.choice((0, 5 * SECOND, 10 * SECOND))
        script = ShakyScript(boot=round(world.some(1, 20) * SECOND), end=rng.choice((0, 5 * SECOND)), lag=lag)
        script.world = world
        facts = FACTS.with_(idempotent_create=rng.random() < 0.4, visibility_lag=lag)
        self.cloud = FakeCloud(world.now, launcher=launcher, script=script, facts=facts)
        self.backend: Backend = ShakyBackend(self.cloud, world, check)
        self.facts = {facts.name: facts}
        blobs = Blobs()
        self.catalog = StoredCatalog(blobs, world)
        self.catalog.refresh({facts.name: self.cloud})
        self.polls: dict[str, list[Callable[[], None]]] = {}
        embedded = rng.random() < 0.5
        self._ids = 0
        self.plane = Plane(
            store=ShakyStore(self.store, world),
            blobs=blobs,
            logs=BlobLogs(blobs),
            seal=Sealer(b"s" * 32, random=rng.randbytes),
            catalog=self.catalog,
            clock=world,
            wake=self.wake,
            news=self.ring,
            random_id=self._random_id,
            random_token=lambda: rng.randbytes(20).hex(),
            install_id=INSTALL,
            install_key=b"i" * 32,
            facts=self.facts,
            embedded=embedded,
            sync_fast=0.0 if embedded else 2.0,
        )
        self.processes = [Process(self, "first"), Process(self, "second")]

    def wake(self, units: Iterable[str]) -> None:
        found = list(units)
        if self.world.chance(0.1):
            self.world.note("hint lost")
            return
        self.world.rng.choice(self.processes).wake(found)
        if self.world.chance(0.1):
            for process in self.processes:
                process.wake(found)

    def ring(self, instance_ids: Iterable[str]) -> None:
        for instance_id in instance_ids:
            for answer in self.polls.pop(instance_id, []):
                self.world.after(0.01, answer)

    def _random_id(self) -> str:
        self._ids += 1
        return derive(f"seed-{self.world.seed}", "random", self._ids)
