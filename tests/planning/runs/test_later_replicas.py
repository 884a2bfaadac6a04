"""Replicas that are added later go wherever the first could have gone: here it took the only place in `local`."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.instants import SECOND
from chalicelib.domain.runs import Run
from tests.world.services import ServiceWorld

SCALING = {"metric": "rps", "target": 1, "scale_up_delay": "0s", "scale_down_delay": "30s", "window": "30s"}
RETRY = {"on_events": ["error", "no-capacity"], "duration": "1h"}


def places(small: ServiceWorld, run: Run) -> list[str]:
    return sorted(job.assignment.fleet_name for job in small.live(run) if job.assignment is not None)


def begun(**config: Any) -> tuple[ServiceWorld, Run]:
    small = ServiceWorld()
    small.add_fleet("local", hosts=1)
    small.pass_fleet(next(iter(small.fleets)))
    run = small.serve(**config)
    small.round(run, 6)
    assert places(small, run) == ["local"]
    small.add_fleet("other", hosts=3)
    small.round(run, 5)
    return small, run


def test_that_are_asked_for_by_hand() -> None:
    small, run = begun(replicas=1)
    small.apply(run, replicas=2)
    small.round(run, 6)
    assert places(small, run) == ["local", "other"]
    assert len(small.serving(run)) == 2 and small.runs[run.id].fleet_name == "local"


def test_that_scaling_adds() -> None:
    small, run = begun(replicas="1..3", scaling=SCALING)
    for _ in range(3):
        small.now += 10 * SECOND
        small.report(run, requests=25)
    small.round(run, 6)
    assert places(small, run) == ["local", "other", "other"]


def test_that_a_rollout_starts() -> None:
    small, run = begun(replicas=1)
    small.apply(run, replicas=1, commands=["serve --new"])
    small.round(run, 3)
    assert places(small, run) == ["local", "other"]
    for _ in range(8):
        small.now += 10 * SECOND
        small.report(run)
        small.round(run)
    assert places(small, run) == ["other"]


def test_that_are_tried_again() -> None:
    small, run = begun(replicas=2, retry=RETRY)
    assert places(small, run) == ["local", "other"]
    other = next(job for job in small.live(run) if job.assignment and job.assignment.fleet_name == "other")
    small.delete_fleet("other")
    small.sync(other.assignment.instance_id if other.assignment else "", exits=1)
    small.add_fleet("third", hosts=1)
    for _ in range(4):
        small.now += 30 * SECOND
        small.round(run)
    assert places(small, run) == ["local", "third"]
