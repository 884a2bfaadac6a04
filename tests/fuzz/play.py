"""Batches of calls, each on a new control plane; what they found, and what they cost.

Everything follows from the seed and the number of a call. A batch is played from its beginning, because what a call
meets depends on those before it.
"""

from __future__ import annotations

import logging
import os
import random
import re
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from chalicelib.api.dispatch import Reply, Request
from chalicelib.engine.reconcile import Reconciler
from tests.fuzz import documents
from tests.fuzz.calls import draw
from tests.fuzz.tenants import TENANTS, Answerer, Town
from tests.fuzz.watch import Caller, failed, seen, wrote

BATCH = 500
PASS = 100  # calls between two passes of the engine
DOCUMENTS = 0.12  # of the calls are archives or configuration files instead
SLOW = 2.0  # seconds of processor that no call may take: others wait for it


@dataclass(frozen=True, order=True)
class Find:
    number: int
    what: str
    context: str = ""

    @property
    def kind(self) -> str:
        """Finds of one kind are told once: their words without names and numbers."""
        return re.sub(r"[0-9a-f]{6,}|\d+|/\S+", "", self.what) + self.context.partition("Traceback")[2][-200:]

    def __str__(self) -> str:
        return f"{self.number}: {self.what}\n    {self.context}"


@dataclass
class Tally:
    """What a batch did, or all of them."""

    calls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)  # "200", "400", "archive", …
    finds: list[Find] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)  # seconds of processor, of each call
    growth: int = 0  # bytes

    def add(self, other: Tally) -> None:
        self.calls += other.calls
        self.kinds += other.kinds
        self.finds += other.finds
        self.costs += other.costs
        self.growth = max(self.growth, other.growth)


def honest(town: Town, request: Request) -> Reply:
    return town.send(request)


def play(seed: int, numbers: range, *, answer: Answerer = honest, timed: bool = True) -> Tally:
    """The calls of one batch, or the first of it. Without `timed`, what they cost is no find."""
    with tempfile.TemporaryDirectory(dir=_memory()) as made, _Errors() as errors:
        batch = Batch(Town.at(Path(made)), Path(made), seed, answer, errors, timed)
        try:
            for number in numbers:
                batch.one(number)
            batch.end(numbers[-1])
        finally:
            batch.town.close()
        return batch.tally


def batches(count: int) -> list[range]:
    return [range(first, min(first + BATCH, count)) for first in range(0, count, BATCH)]


def show(seed: int, number: int) -> list[Find]:
    """Plays up to the call of this number and prints it with its answer; what that call alone found."""
    first = number // BATCH * BATCH
    with tempfile.TemporaryDirectory(dir=_memory()) as made, _Errors() as errors:
        batch = Batch(Town.at(Path(made)), Path(made), seed, honest, errors, timed=True)
        try:
            for each in range(first, number + 1):
                batch.one(each)
            batch.end(number)
        finally:
            batch.town.close()
    print(*batch.last, errors.last, sep="\n\n")
    return [find for find in batch.tally.finds if find.number == number]


@dataclass
class Batch:
    town: Town
    folder: Path
    seed: int
    answer: Answerer
    errors: _Errors
    timed: bool
    tally: Tally = field(default_factory=Tally)
    last: tuple[object, ...] = ()  # what the last call was about

    def one(self, number: int) -> None:
        rng = random.Random(f"{self.seed}/{number}")
        self.errors.last = ""
        begun = time.thread_time()
        context = "a document"
        if rng.random() < DOCUMENTS:
            finds = list(self.document(rng))
        else:
            caller, request = draw(self.town, rng)
            begun = time.thread_time()
            finds = list(self.call(caller, request))
            context = f"{caller.name} {request.method} {request.path[:200]} {request.query} {request.body[:1500]!r}"
        cost = time.thread_time() - begun
        if self.timed and cost > SLOW and context != "a document":  # unpacking is on the time of whoever packed
            finds.append(f"{cost:.1f} s of processor")
        self.tally.calls += 1
        if context != "a document":
            self.tally.costs.append(cost)
        self.tally.finds += [Find(number, what, f"{context} {self.errors.last}") for what in finds]
        if number % PASS == PASS - 1:
            self.decide(number)

    def document(self, rng: random.Random) -> Iterator[str]:
        if rng.random() < 0.5:
            self.tally.kinds["archive"] += 1
            place = self.folder / "unpacked"
            place.mkdir(exist_ok=True)
            archive, into = documents.archive(rng), rng.random() < 0.5
            self.last = archive, into
            yield from documents.unpacked(archive, place, into)
        else:
            self.tally.kinds["file"] += 1
            text = documents.configuration(rng)
            self.last = (text,)
            yield from documents.read(text)

    def call(self, caller: Caller, request: Request) -> Iterator[str]:
        ground = self.town.ground
        before, public = ground.standing(caller), ground.public()
        self.town.store.take_written()
        reply = self.answer(self.town, request)
        self.last = request, reply
        self.tally.kinds[str(reply.status)] += 1
        yield from failed(reply)
        yield from wrote(ground, caller, before, public, self.town.store.take_written())
        if b"canary-" in reply.body or b"Y2FuYXJ5" in reply.body:
            yield from seen(ground, caller, (before, ground.standing(caller)), reply.body)
        self.town.learn(caller, request, reply)

    def end(self, number: int) -> None:
        """What the calls left behind: the engine must be able to decide about it, and each log be its job's own."""
        self.decide(number)
        self.tally.finds += [Find(number, what) for what in self.mixed_logs()]

    def decide(self, number: int) -> None:
        """A pass of the engine, a while later. Its effects stay undone: each is a cloud that doesn't answer."""
        world = self.town.rig.world
        world.clock.pass_(7)
        self.errors.last = ""
        reconciler = Reconciler(
            world.plane.store, world.clock, wake=world.plane.wake, notify_agents=world.plane.notify_agents,
            effects=self.town, catalog=world.plane.catalog, backends=world.plane.backends,
        )  # fmt: skip
        woken, world.woken[:] = dict.fromkeys(world.woken), []
        for unit, error in reconciler.run(woken).failed.items():
            self.tally.finds.append(Find(number, f"the engine fails at {unit}: {error}", self.errors.last))

    def mixed_logs(self) -> Iterator[str]:
        for tenant in TENANTS:
            project_id = self.town.ground.projects[tenant]
            for job_id in self.town.handles[tenant]["task"]:
                log = b"".join(data for _, data in self.town.rig.world.plane.logs.read(project_id, job_id).records)
                for other in TENANTS:
                    if other != tenant and f"said by {other}".encode() in log:
                        yield f"{other}'s agent writes into a log of {tenant}"


class _Errors(logging.Handler):
    """Keeps the last failure that was logged, and the rest off the screen."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.last = "".join(traceback.format_exception(record.exc_info[1])[-6:])

    def __enter__(self) -> _Errors:
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)


def _memory() -> str | None:
    """A folder whose files are memory: nothing here outlives its batch, so nothing needs a disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
