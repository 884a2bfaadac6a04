"""Histories with a service in each: they go right, and a plane that treats its services badly is found out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from chalicelib.engine.kinds import KINDS
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.runs.run import decide_run
from chalicelib.planning.runs.snapshot import RunSnapshot
from tests.harness.examples import seeds
from tests.simulation.history import History
from tests.simulation.plane import Parts
from tests.simulation.stories import commits, fleets, local, machines, outages, services, wakes
from tests.simulation.world import Invariant, Violation


class Services(services.Services):
    likely = 1.0


STORIES = (Services, commits.Commits, local.Local, machines.Machines, outages.Outages, wakes.Wakes, fleets.Fleets)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every fault is logged, as it should be, but thousands of them would only fill the report."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", seeds(6))
def test_histories_of_services_end_well(seed: int) -> None:
    History(seed, stories=STORIES).play()


def _deaf(snapshot: RunSnapshot) -> Plan:
    """No door is heard."""
    return decide_run(replace(snapshot, traffic=()))


def _hasty(snapshot: RunSnapshot) -> Plan:
    """Every door is taken to have let every replica go."""
    jobs = tuple(job.id for job in snapshot.jobs)
    return decide_run(replace(snapshot, traffic=tuple(door.with_(let_go=jobs) for door in snapshot.traffic)))


@pytest.mark.parametrize(
    ("decide", "breaks"),
    [(_deaf, (services.WOKEN, services.SETTLES)), (_hasty, (services.DRAINED,))],
    ids=["no door is heard", "replicas aren't drained"],
)
def test_a_plane_that_treats_services_badly_is_found_out(
    decide: Callable[[RunSnapshot], Plan], breaks: tuple[Invariant, ...]
) -> None:
    parts = Parts(kinds=KINDS.deciding("run", decide=decide))
    found = set()
    for seed in range(20):
        try:
            History(seed, parts, STORIES).play()
        except Violation as violation:
            found.add(violation.invariant)
            if violation.invariant in breaks:
                return
    pytest.fail(f"nobody said that one of {[each.name for each in breaks]} is broken, but {found}")
