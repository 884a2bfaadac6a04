"""Servers of a pair on virtual time: their clocks run at different rates, the place answers late or never, and
processes are paused, killed and started again. They do the steps of the protocol as real ones do."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from chalicelib.domain.leases import Lease
from chalicelib.runtime.pair.protocol import (
    RENEWALS,
    Found,
    Holding,
    Read,
    Step,
    Swap,
    Watch,
    first,
    renewal,
    takeover,
)

LASTS = 15.0


@dataclass
class Place:
    """The lease, with the swaps that were made."""

    found: Found | None = None
    swaps: int = 0

    def swap(self, lease: Lease, after: str | None) -> Found | None:
        if (None if self.found is None else self.found.version) != after:
            return None
        self.swaps += 1
        self.found = Found(lease, str(self.swaps))
        return self.found


class Lost(Exception):
    """No result came."""


@dataclass
class Server:
    name: str
    rate: float  # of its clock
    offset: float
    holding: Holding | None = None
    alive: bool = True
    paused_until: float = 0.0
    has_plane: bool = False
    started: int = 0  # how often, so that what an earlier process had under way is forgotten

    def clock(self, now: float) -> float:
        return self.offset + now * self.rate

    def decides(self, now: float) -> bool:
        held = self.holding
        running = self.alive and now >= self.paused_until
        return running and held is not None and held.decides(self.clock(now))


@dataclass
class Rules:
    """What is planted."""

    faults: bool = True
    fastest: float = 1.35  # of two clocks, by how much one is faster
    patience: Callable[[Watch, float], float] = lambda watch, now: watch.left(now)
    counts_from_answer: bool = False
    blind: bool = False  # swaps without their condition


class World:
    """One history, made by its seed."""

    def __init__(self, seed: int, rules: Rules | None = None) -> None:
        self.random, self.rules = random.Random(seed), rules or Rules()
        self.now, self.place = 0.0, Place()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.cut: set[str] = set()
        rates = [1.0, self.random.uniform(1.0, self.rules.fastest), self.random.uniform(1.0, self.rules.fastest)]
        self.random.shuffle(rates)
        self.servers = [
            Server(name, rate, self.random.uniform(0, 1e6)) for name, rate in zip("abc", rates, strict=True)
        ]
        self.servers[0].has_plane = True
        self.both: list[str] = []  # moments at which two decided
        self.deciders: list[str] = []  # who has decided, in turn
        for server in self.servers:
            self._spawn(server)

    def run(self, seconds: float) -> None:
        while self._events and self._events[0][0] <= seconds:
            self.now, _, event = heapq.heappop(self._events)
            event()
            self._look()

    def at(self, delay: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, event))

    def _look(self) -> None:
        deciding = [server.name for server in self.servers if server.decides(self.now)]
        if len(deciding) > 1:
            self.both.append(f"{self.now:.2f}: {deciding}")
        if deciding and self.deciders[-1:] != deciding[:1]:
            self.deciders.append(deciding[0])

    # --- processes ----------------------------------------------------------------------------------------------------

    def _spawn(self, server: Server) -> None:
        server.alive, server.holding, server.started = True, None, server.started + 1
        self._resume(server, server.started, self._life(server), None)

    def _resume(self, server: Server, start: int, life: Iterator[object], result: object) -> None:
        """Go on with a process, unless it was killed; later, if it is paused."""
        if not server.alive or server.started != start:
            return
        if self.now < server.paused_until:
            self.at(server.paused_until - self.now, lambda: self._resume(server, start, life, result))
            return
        try:
            wanted = life.throw(result) if isinstance(result, Lost) else life.send(result)  # type: ignore[attr-defined]
        except StopIteration:
            server.alive = False
            self.at(self.random.uniform(1, 5), lambda: self._spawn(server))  # as systemd does
            return
        if isinstance(wanted, float):
            self.at(wanted / server.rate, lambda: self._resume(server, start, life, None))
        else:
            self._ask(server, wanted, lambda answer: self._resume(server, start, life, answer))

    def _ask(self, server: Server, ask: object, done: Callable[[object], None]) -> None:
        """A request that arrives late or never, and its answer, too."""
        late = self.random.uniform(0.01, 0.3)
        if self.rules.faults and self.random.random() < 0.05:
            late = self.random.uniform(0.3, 40.0)
        gone = server.name in self.cut or (self.rules.faults and self.random.random() < 0.03)
        answered = [False]

        def finish(result: object) -> None:
            if not answered[0]:
                answered[0] = True
                done(result)

        def arrive() -> None:
            if server.name in self.cut:
                return
            result = self._served(ask)
            if not (self.rules.faults and self.random.random() < 0.03):  # else the answer is lost
                self.at(self.random.uniform(0.01, 0.3), lambda: finish(result))

        if not gone:
            self.at(late, arrive)
        self.at(self.random.uniform(3.0, 9.0), lambda: finish(Lost()))

    def _served(self, ask: object) -> Found | None:
        if isinstance(ask, Read):
            return self.place.found
        assert isinstance(ask, Swap)
        current = self.place.found
        blind = self.rules.blind and current is not None
        return self.place.swap(ask.lease, current.version if blind and current else ask.after)

    def _asked(self, server: Server, step: Step) -> Iterator[object]:
        result: object = None
        while True:
            try:
                ask = step.send(result)  # type: ignore[arg-type]
            except StopIteration as done:
                held = done.value
                if held is not None and self.rules.counts_from_answer:
                    held = Holding(held.found, server.clock(self.now))
                return held
            result = yield ask

    def _life(self, server: Server) -> Iterator[object]:
        """A server from its start to its end, as `runtime/serve.py` has it."""
        try:
            held = yield from self._begun(server)
            while held is not None:
                server.holding, server.has_plane = held, True
                yield LASTS / RENEWALS
                if not held.decides(server.clock(self.now)):
                    return
                try:
                    step = renewal(held, server.clock(self.now), moment="copy")
                    held = yield from self._asked(server, step)
                except Lost:
                    continue
        except Lost:
            return

    def _begun(self, server: Server) -> Iterator[object]:
        found = yield Read()
        now = server.clock(self.now)
        if server.has_plane and found is None:
            return (yield from self._asked(server, first(now, id="x", owner=server.name, name="", lasts=LASTS)))
        watch = Watch(server.name)
        while True:
            try:
                found = yield Read()
                watch.saw(found, server.clock(self.now))  # type: ignore[arg-type]
                now = server.clock(self.now)
                if watch.seen is not None and self.rules.patience(watch, now) <= 0:
                    step = takeover(watch.seen, now, owner=server.name, name="", lasts=LASTS)
                    held = yield from self._asked(server, step)
                    if held is not None:
                        return held
            except Lost:
                pass
            yield LASTS / RENEWALS

    # --- what happens to them -----------------------------------------------------------------------------------------

    def pause(self, server: Server, seconds: float) -> None:
        server.paused_until = max(server.paused_until, self.now + seconds)
        self.at(seconds, lambda: None)  # a look at the moment when it wakes

    def kill(self, server: Server, back_after: float) -> None:
        server.alive = False
        self.at(back_after, lambda: self._spawn(server) if not server.alive else None)

    def partition(self, server: Server, seconds: float) -> None:
        self.cut.add(server.name)
        self.at(seconds, lambda: self.cut.discard(server.name))

    def trouble(self, seconds: float) -> None:
        """Plant something now and then."""
        at = 0.0
        while (at := at + self.random.expovariate(1 / 12.0)) < seconds:
            server, kind, lasts = self.random.choice(self.servers), self.random.random(), self.random.uniform(0.1, 90)
            if kind < 0.4:
                self.at(at, lambda server=server, lasts=lasts: self.pause(server, lasts))  # type: ignore[misc]
            elif kind < 0.7:
                self.at(at, lambda server=server, lasts=lasts: self.partition(server, lasts))  # type: ignore[misc]
            else:
                self.at(at, lambda server=server, lasts=lasts: self.kill(server, lasts))  # type: ignore[misc]


@dataclass
class Outcome:
    both: list[str] = field(default_factory=list)
    takeovers: int = 0


def histories(seeds: range, rules: Rules | None = None, seconds: float = 1_500.0) -> Outcome:
    """These histories, up to the first one in which two servers decided at once."""
    found = Outcome()
    for seed in seeds:
        world = World(seed, rules)
        world.trouble(seconds)
        world.run(seconds)
        found.both += [f"seed {seed} at {each}" for each in world.both[:1]]
        found.takeovers += len(world.deciders)
        if found.both:
            break
    return found
