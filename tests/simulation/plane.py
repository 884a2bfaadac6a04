"""The processes that run the product: two reconcilers with their executors, the orphan hunt, and the API. Each may die
at any moment, and what it holds in memory dies with it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.simulated.cloud import FakeCloud, Launcher
from chalicelib.backends.spi import facts_of
from chalicelib.catalog.offers import StoredCatalog
from chalicelib.contract.agent import SyncReply
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.retention import Retention
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.effects.table import FAMILIES, Family
from chalicelib.engine.execute import Executor
from chalicelib.engine.kinds import KINDS, Kinds
from chalicelib.engine.load import Loader
from chalicelib.engine.ports import Effects, Performer
from chalicelib.engine.read import Reader
from chalicelib.engine.reconcile import Reconciler
from chalicelib.engine.silent_agents import silent_units
from chalicelib.engine.sweep import Sweeper
from chalicelib.errors import StorageFull
from chalicelib.planning.kernel.executions import AnswerExecution, StartExecution
from chalicelib.planning.kernel.plan import Effect
from chalicelib.store.history import HistoryStore
from chalicelib.store.log_blobs import BlobLogs
from chalicelib.store.memory import MemoryStore
from chalicelib.store.seal import Sealer
from chalicelib.usecases.agents import calls
from chalicelib.usecases.context import Plane
from chalicelib.usecases.pace import EMBEDDED, PER_CALL, Pace
from tests.simulation.edges import Away, ShakyBackend, ShakyMarket, ShakyScript, ShakyStore
from tests.simulation.executions import Machines
from tests.simulation.world import Crash, Invariant, World
from tests.world.certificates import FakeAuthority
from tests.world.ports import Blobs

INSTALL = "simulation"
SWEEP = 300.0  # seconds between sweeps for orphans
MOST_UNITS = 400  # in one pass: more means that a pass feeds itself

PASSES_SUCCEED = Invariant("passes succeed", "a pass fails only where the store does")
PASSES_END = Invariant("passes end", f"one pass looks at {MOST_UNITS} units at most")


@dataclass(frozen=True)
class Parts:
    """The parts that a planted bug replaces."""

    kinds: Kinds = KINDS
    families: Sequence[type[Family]] = FAMILIES
    reader: type[Reader] = Reader
    sweeper: type[Sweeper] = Sweeper
    sync: Callable[..., SyncReply] = calls.sync


@dataclass(frozen=True)
class Terms:
    """A history's environment."""

    store_lag: Micros = 0  # of the store's indexes, at most
    cloud_lag: Micros = 0  # until a listing shows what was created
    boot: Micros = 2 * SECOND
    end: Micros = 0
    idempotent: bool = False
    placement_groups: bool = True
    market: bool = False  # that answers requests, in place of a cloud with a list of offers
    pace: Pace = EMBEDDED
    tick: float = 60.0  # seconds: the schedule that needs no hint
    processes: int = 2
    executions: bool = False  # of Step Functions drive workflows

    @classmethod
    def drawn(cls, rng: random.Random) -> Terms:
        return cls(
            store_lag=rng.choice((0, 2 * SECOND, 10 * SECOND)),
            cloud_lag=rng.choice((0, 5 * SECOND, 10 * SECOND)),
            boot=round(rng.uniform(1, 20) * SECOND),
            end=rng.choice((0, 5 * SECOND)),
            idempotent=rng.random() < 0.4,
            pace=EMBEDDED if rng.random() < 0.5 else PER_CALL,
        )


class Process:
    """One reconciler with its executor and its orphan hunt."""

    def __init__(self, site: Site) -> None:
        self.site, self.world = site, site.world
        self.generation = 0
        self._busy = False
        self.boot()
        self.world.after(self.world.some(0, site.terms.tick), self._tick)
        self.world.after(self.world.some(0, SWEEP), self._sweep)

    def boot(self) -> None:
        site, parts = self.site, self.site.parts
        self.generation += 1
        self._hints: dict[str, None] = {}
        self._planned = False
        self.reconciler, self.executor = site.process(self)
        assert isinstance(self.reconciler.store, HistoryStore)
        assert isinstance(self.reconciler.store.below, ShakyStore)
        self.store = self.reconciler.store.below  # what lies under it counts its commits
        self.sweeper = parts.sweeper(self.executor)

    def wake(self, units: Iterable[str]) -> None:
        self._hints.update(dict.fromkeys(units))
        if not self._planned:
            self._planned = True
            self._after(self.world.some(0.01, 0.5), self._pass)

    def submit(self, effect: Effect) -> None:
        if self.site.loses_effect(effect):
            return
        if isinstance(effect, StartExecution | AnswerExecution):
            self.site.announce(effect)
            return
        delay = self.world.some(5, 90) if self.world.chance(0.05) else self.world.some(0, 0.5)
        self._after(delay, lambda: self.executor.execute(effect))

    def _tick(self) -> None:
        self.wake(())
        if self.site.terms.pace.watched:
            self._after(0, lambda: self.wake(silent_units(self.store, self.world)))
        self.world.after(self.site.terms.tick, self._tick)

    def _sweep(self) -> None:
        self._after(0, lambda: [self.sweeper.run(account) for account in self.site.accounts.accounts()])
        self.world.after(SWEEP, self._sweep)

    def _pass(self) -> None:
        hints, self._hints, self._planned = list(self._hints), {}, False
        failures = self.site.weather.failures
        done = self.reconciler.run(hints)
        if done.failed and failures == self.site.weather.failures:
            raise PASSES_SUCCEED.broken(f"{done.failed}")
        if done.units > MOST_UNITS:
            raise PASSES_END.broken(f"it looked at {done.units}")

    def _after(self, delay: float, do: Callable[[], object]) -> None:
        generation = self.generation

        def run() -> None:
            if generation != self.generation:
                return  # lost with the memory of a process that died
            if self._busy:
                self.world.after(0.2, run)  # it stalls in the middle of something
                return
            self._busy = True
            try:
                do()
            except (Crash, Away, StorageFull):
                self.boot()
            finally:
                self._busy = False

        self.world.after(delay, run)


class Weather:
    """The store's health: the share of calls that fail, and how many have failed."""

    def __init__(self) -> None:
        self.share = 0.0
        self.failures = 0


class Site:
    """The whole control plane: store, cloud, catalog, processes."""

    def __init__(self, world: World, parts: Parts, launcher: Launcher, terms: Terms | None = None) -> None:
        self.world, self.parts, self.weather = world, parts, Weather()
        seed, odd = world.seed, dict[str, Any]()
        odd |= {"placement_groups": seed % 4 != 3, "executions": seed % 2 == 1, "market": seed % 9 == 7}
        self.terms = terms = terms or replace(Terms.drawn(world.rng), **odd)
        self.machines = {row.noun: row.machine for row in parts.kinds.rows if row.noun and row.machine}
        rng = world.rng
        self.store = MemoryStore(clock=world.now, rng=random.Random(rng.random()), max_lag=terms.store_lag)
        self.script = script = ShakyScript(boot=terms.boot, end=terms.end, lag=terms.cloud_lag)
        script.world = world
        facts = facts_of(FakeCloud).with_(
            idempotent_create=terms.idempotent,
            visibility_lag=terms.cloud_lag,
            placement_groups=terms.placement_groups,
            live_offers=terms.market,
            offers_last=MINUTE,  # which only a market minds here
        )
        self.cloud = FakeCloud(world.now, launcher=launcher, script=script, facts=facts)
        self.backend = (ShakyMarket if terms.market else ShakyBackend)(self.cloud, world)
        blobs = Blobs()
        self.accounts = accounts = Accounts([Account(facts, lambda: self.backend)])
        self.catalog = StoredCatalog(blobs, world, accounts)
        self.catalog.refresh(accounts.accounts()[0].key)
        self.authority = FakeAuthority(world.now, lambda host, token: "")  # stories say what a gateway's host answers
        self.performers: dict[str, Performer] = {}  # of workflows, by definition; stories bring them
        self.polls: dict[str, list[Callable[[], None]]] = {}
        self.loses_hint: Callable[[], bool] = lambda: world.chance(0.1)
        self.loses_effect: Callable[[Effect], bool] = lambda effect: False
        self.loses_news: Callable[[], bool] = lambda: False
        self._ids = 0
        self.plane = Plane(
            store=HistoryStore(ShakyStore(self.store, world, self.weather), Retention()),
            blobs=blobs,
            logs=BlobLogs(MemoryStore(), blobs),
            seal=Sealer(b"s" * 32, random=rng.randbytes),
            catalog=self.catalog,
            clock=world,
            wake=self.wake,
            notify_agents=self.ring,
            random_id=self._random_id,
            random_token=lambda: rng.randbytes(20).hex(),
            install_id=INSTALL,
            install_key=b"i" * 32,
            backends=accounts,
            pace=terms.pace,
        )
        self.configured = True
        self.executions = Machines(world, lambda: self.process(self.processes[0])) if terms.executions else None
        self.processes = [Process(self) for _ in range(terms.processes)]

    def process(self, effects: Effects) -> tuple[Reconciler, Executor]:
        """What a process that starts now has in memory."""
        parts, key = self.parts, self.plane.install_key
        store = HistoryStore(ShakyStore(self.store, self.world, self.weather), Retention())
        load = Loader(parts.reader(store), self.catalog, self.backends, executions=self.executions is not None)
        reconciler = Reconciler(
            store,
            self.world,
            wake=self.wake,
            notify_agents=self.ring,
            effects=effects,
            catalog=self.catalog,
            backends=self.backends,
            kinds=parts.kinds,
            load=load,
        )
        here = EffectContext(
            store,
            self.world,
            self.backends,
            INSTALL,
            key,
            "http://plane",
            performers=self.performers,
            executions=self.executions,
            seal=self.plane.seal,
            authority=self.authority,
            ask_market=self.catalog.ask,
        )
        executor = Executor(
            here, load, wake=self.wake, notify_agents=self.ring, kinds=parts.kinds, families=parts.families
        )
        return reconciler, executor

    def announce(self, effect: StartExecution | AnswerExecution) -> None:
        if self.executions is not None:
            self.executions.take(effect)

    @property
    def backends(self) -> Accounts:
        """The configuration for a process that starts now."""
        return Accounts([Account.of(self.backend)] if self.configured else [])

    def deploy(self) -> None:
        """Another version of the plane, or another configuration: every process restarts."""
        for process in self.processes:
            process.boot()

    def wake(self, units: Iterable[str]) -> None:
        found = list(units)
        if self.loses_hint():
            self.world.note("hint lost")
            return
        self.world.rng.choice(self.processes).wake(found)
        if self.world.chance(0.1):
            for process in self.processes:
                process.wake(found)

    def ring(self, instance_ids: Iterable[str]) -> None:
        for instance_id in () if self.loses_news() else instance_ids:
            for answer in self.polls.pop(instance_id, []):
                self.world.after(0.01, answer)

    def _random_id(self) -> str:
        self._ids += 1
        return derive(f"seed-{self.world.seed}", "random", self._ids)
