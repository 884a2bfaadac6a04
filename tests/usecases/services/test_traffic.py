"""Doors' reports are stored once, by the plane's clock, and wake the runs that they are about."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.domain import keys
from chalicelib.domain.instants import HOUR, MINUTE, SECOND, Micros
from chalicelib.domain.noun import Noun
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.services import BUCKET, HISTORY, Bucket, Scale, Traffic
from chalicelib.errors import Conflict
from chalicelib.store import nouns
from chalicelib.usecases.services.traffic import opened, report
from tests.world import nouns as b
from tests.world.plane import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.in_folder(tmp_path)


@pytest.fixture
def run(world: World) -> Run:
    made = b.run("chat")
    world.store.commit([nouns.put(made)])
    return made


def stored(world: World, run: Run, door: str = "server") -> Traffic | None:
    return nouns.find(world.store, Traffic, keys.traffic(run.id, door))


def seen(run: Run, at: Micros, *requests: int, quiet: bool = False, **more: object) -> Traffic:
    first = at // BUCKET * BUCKET - (len(requests) - 1) * BUCKET
    buckets = tuple(Bucket(at=first + n * BUCKET, requests=each) for n, each in enumerate(requests))
    return Traffic.unvalidated(run_id=run.id, door="said", at=at, quiet=quiet, buckets=buckets, **more)


def test_it_is_kept_under_its_door_and_wakes_the_run(world: World, run: Run) -> None:
    report(world.plane, "server", [seen(run, world.at, 3, 4)])
    found = stored(world, run)
    assert found is not None
    assert (found.door, found.at, [each.requests for each in found.buckets]) == ("server", world.at, [3, 4])
    assert world.woken == [f"run/{run.id}"]


def test_each_report_takes_the_place_of_the_one_before(world: World, run: Run) -> None:
    report(world.plane, "server", [seen(run, world.at, 3)])
    world.at += BUCKET
    report(world.plane, "server", [seen(run, world.at, 3, 5)])
    report(world.plane, "gateway", [seen(run, world.at, 9)])
    found = stored(world, run)
    assert found is not None
    assert [each.requests for each in found.buckets] == [3, 5]
    assert stored(world, run, "gateway") is not None


def test_what_was_quiet_and_still_is_is_neither_written_nor_woken(world: World, run: Run) -> None:
    quiet = seen(run, world.at, 3, quiet=True)
    report(world.plane, "server", [quiet])
    before, woken = stored(world, run), len(world.woken)
    world.at += MINUTE
    report(world.plane, "server", [quiet.with_(at=world.at)])
    assert stored(world, run) == before
    assert len(world.woken) == woken
    report(world.plane, "server", [quiet.with_(at=world.at, let_go=("j",))])
    assert len(world.woken) == woken + 1


def test_a_busy_door_is_written_though_nothing_new_came(world: World, run: Run) -> None:
    """Or it would look as if it had fallen silent."""
    report(world.plane, "server", [seen(run, world.at, 3)])
    world.at += BUCKET
    report(world.plane, "server", [seen(run, world.at - BUCKET, 3).with_(at=world.at)])
    found = stored(world, run)
    assert found is not None
    assert found.at == world.at


def test_a_doors_clock_may_be_wrong(world: World, run: Run) -> None:
    at = world.at // BUCKET * BUCKET + 5 * SECOND
    world.at = at
    report(world.plane, "server", [seen(run, at + HOUR, 3, 4, held=1)])
    found = stored(world, run)
    assert found is not None
    assert (found.at, found.held, found.buckets[-1].at) == (at, 1, at - 5 * SECOND)


def test_a_door_keeps_no_more_than_the_longest_window(world: World, run: Run) -> None:
    report(world.plane, "server", [seen(run, world.at, *[1] * 50)])
    found = stored(world, run)
    assert found is not None
    assert len(found.buckets) == HISTORY // BUCKET + 1


def test_nothing_is_kept_of_a_run_that_has_ended_or_never_was(world: World, run: Run) -> None:
    ended = run.with_(version=1, status=RunStatus.done)
    world.store.commit([nouns.put(ended)])
    report(world.plane, "server", [seen(run, world.at, 3), seen(b.run("nobody"), world.at, 3)])
    assert stored(world, run) is None
    assert world.woken == []


def test_a_door_that_begins_anew_has_nothing_under_way(world: World) -> None:
    """It was killed in the middle of requests, and nobody comes any more."""
    runs = {name: b.run(name, scales=(Scale(group="0", desired=2),)) for name in ("busy", "idle")}
    runs["task"] = b.run("task")
    for run in runs.values():
        world.store.commit([nouns.put(run), nouns.pointer(keys.run_name(run.project_id, run.name), run.id)])
    world.store.commit([nouns.pointer(keys.project_name("main"), runs["task"].project_id)])
    waits = {"held": 1, "let_go": ("j",)}
    report(
        world.plane, "server", [seen(runs["busy"], world.at, 3, 4, **waits), seen(runs["idle"], world.at, quiet=True)]
    )
    report(world.plane, "gateway", [seen(runs["busy"], world.at, 9)])
    world.woken.clear()
    world.at += HOUR
    assert set(opened(world.plane, "server")) == {runs["busy"].id, runs["idle"].id}
    found, other = stored(world, runs["busy"]), stored(world, runs["busy"], "gateway")
    assert found is not None and other is not None
    assert (found.at, found.quiet, found.held, found.let_go) == (world.at, True, 0, ())
    assert not other.quiet, "that is another door's to say"
    assert world.woken == [f"run/{runs['busy'].id}"]
    opened(world.plane, "server")
    assert len(world.woken) == 1 and stored(world, runs["busy"]) == found


def test_many_services_at_once(world: World) -> None:
    runs = [b.run(f"chat-{n}") for n in range(130)]
    for start in range(0, 130, 65):
        world.store.commit([nouns.put(each) for each in runs[start : start + 65]])
    report(world.plane, "server", [seen(each, world.at, 3) for each in runs])
    assert all(stored(world, each) for each in runs)
    assert sorted(world.woken) == sorted(f"run/{each.id}" for each in runs)


class Busy:
    """A store in which somebody else always writes first."""

    def __init__(self, inner: object, times: int) -> None:
        self._inner, self.times = inner, times

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def commit(self, changes: list[Noun]) -> None:
        if self.times:
            self.times -= 1
            raise Conflict("traffic")
        self._inner.commit(changes)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("times", "fails"), [(2, False), (3, True)])
def test_two_reports_at_a_time_are_both_tried_again(tmp_path: Path, times: int, fails: bool) -> None:
    world = World.in_folder(tmp_path)
    run = b.run("chat")
    world.store.commit([nouns.put(run)])
    other = World.in_folder(tmp_path, store=Busy(world.store, times))
    if fails:
        with pytest.raises(Conflict):
            report(other.plane, "server", [seen(run, world.at, 3)])
    else:
        report(other.plane, "server", [seen(run, world.at, 3)])
        assert stored(world, run) is not None
