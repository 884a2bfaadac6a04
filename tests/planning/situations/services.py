"""A look at a service's run: how many replicas it has, which of them go, and what a new version changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chalicelib.domain.instants import SECOND
from chalicelib.domain.runs import Run
from chalicelib.planning.runs.run import decide_run
from tests.planning.situations.kit import Decided, situation
from tests.world.services import ServiceWorld

SCALING = {"metric": "rps", "target": 1, "scale_up_delay": "0s", "scale_down_delay": "30s", "window": "30s"}
ROUTED = [
    {"name": "front", "replicas": 1, "commands": ["smg"], "router": {"type": "smg"}},
    {"name": "gpu", "replicas": 2, "commands": ["serve"]},
]
FEWER = [ROUTED[0], {**ROUTED[1], "replicas": 1}]


def begun(rounds: int = 6, **config: Any) -> tuple[ServiceWorld, Run]:
    """A service that has had time to start on six machines."""
    small = ServiceWorld()
    small.add_fleet("local", hosts=6)
    small.pass_fleet(next(iter(small.fleets)))
    run = small.serve(**config)
    small.round(run, rounds)
    return small, run


def decided(small: ServiceWorld, run: Run) -> Decided:
    snapshot = small.look_at(small.runs[run.id])
    return snapshot, decide_run(snapshot)


def busy(small: ServiceWorld, run: Run) -> None:
    for _ in range(3):
        small.now += 10 * SECOND
        small.report(run, requests=25)


def quiet(small: ServiceWorld, run: Run) -> None:
    for _ in range(4):
        small.now += 10 * SECOND
        small.report(run)


def waits(small: ServiceWorld, run: Run) -> None:
    small.report(run, held=1)


def another(small: ServiceWorld, run: Run) -> None:
    small.apply(run, replicas=1, commands=["other"])


def another_fails(small: ServiceWorld, run: Run) -> None:
    another(small, run)
    small.broken[run.id, 1] = 1
    small.round(run, 4)


def fewer(small: ServiceWorld, run: Run) -> None:
    small.apply(run, replicas=1)


def drained(small: ServiceWorld, run: Run) -> None:
    fewer(small, run)
    small.pass_run(small.runs[run.id])
    small.report(run)


def behind_a_router(small: ServiceWorld, run: Run) -> None:
    small.apply(run, groups=FEWER)
    small.pass_run(small.runs[run.id])
    small.report(run)


def scaled(before: Callable[[ServiceWorld, Run], None], **config: Any) -> Decided:
    small, run = begun(**config)
    before(small, run)
    return decided(small, run)


situation("a service: more replicas for more requests", scaled, busy, replicas="1..3", scaling=SCALING)
situation(
    "a service: a service that may sleep and isn't called",
    scaled,
    quiet,
    replicas="0..2",
    scaling=SCALING,
    comes_to="again in 3600 s",
)
situation("a service: a request waits at a service that sleeps", scaled, waits, replicas="0..2", scaling=SCALING)
situation(
    "a service: a new version begins with one replica more",
    scaled,
    another,
    replicas=1,
    comes_to="new job run-0-0-1 submitted; again in 60 s",
)
situation("a service: a new version doesn't work", scaled, another_fails, replicas=1, comes_to="again in 60 s")
situation(
    "a service: a drained replica is let go by its door",
    scaled,
    drained,
    replicas=2,
    comes_to="run-0-0-1 running → terminating (scaled_down); again in 60 s",
)
situation("a service: a drained worker isn't let go by the door", scaled, behind_a_router, groups=ROUTED)
