"""The two paces by their consequences: what an hour of an agent costs, how soon it gets news, when it counts as
lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.instants import HOUR, MINUTE, SECOND, Micros
from chalicelib.domain.jobs import Job
from chalicelib.runtime.embedded import RENEW_EVERY
from chalicelib.usecases.agents.calls import has_news
from chalicelib.usecases.pace import EMBEDDED, PER_CALL, STEADY_AFTER, Pace
from tests.usecases.cluster import Cluster, running
from tests.world.plane import World

PACES = {"embedded": EMBEDDED, "per call": PER_CALL}
HELD = 25.0  # seconds that an agent lets the server hold its call
TRAVEL = 0.4  # seconds that a call takes on its way, both ways


@dataclass
class Quiet:
    """An agent with one running job and no other news, which calls when it should."""

    cluster: Cluster
    job: Job
    calls: int = 0
    writes: int = 0
    closest: Micros = HOUR  # to breaking the promise

    def live(self, time: Micros) -> None:
        clock, pace = self.cluster.world.clock, self.cluster.world.plane.pace
        end, pause, held = clock.at + time, pace.slow, HELD if pace.long_poll else 0.0
        while clock.at < end:
            before = self.cluster.presence
            clock.pass_(pause + held + TRAVEL)
            self.closest = min(self.closest, before.seen_until - clock.at)
            answer = self.cluster.agent.sync(running(self.job), wait=HELD)
            assert not has_news(answer)
            pause = answer["next_sync_in"]
            self.calls += 1
            self.writes += self.cluster.presence != before


@pytest.fixture(params=PACES.values(), ids=PACES)
def quiet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Quiet]:
    world = World.in_folder(tmp_path, pace=request.param)
    cluster = Cluster.of(world)
    cluster.agent.join()
    job = cluster.place()
    cluster.agent.sync(running(job))
    world.clock.pass_(STEADY_AFTER / SECOND)
    cluster.agent.sync(running(job))
    yield Quiet(cluster, job)
    world.plane.store.close()


@pytest.mark.slow
def test_an_agent_that_calls_as_told_never_breaks_its_promise(quiet: Quiet) -> None:
    quiet.live(2 * HOUR)
    assert quiet.closest > 5 * SECOND  # nor does it come so close that a slow network would


@pytest.mark.slow
def test_an_hour_at_peace_costs_sixty_calls_and_twelve_writes_where_they_are_billed(quiet: Quiet) -> None:
    quiet.live(HOUR)
    if quiet.cluster.world.plane.pace is PER_CALL:
        assert (quiet.calls, quiet.writes) == (60, 12)
    else:
        assert 60 < quiet.writes < quiet.calls  # free, and so the plane knows more


def test_a_promise_has_room_for_its_renewal_to_wait() -> None:
    assert EMBEDDED.room >= 2 * RENEW_EVERY and EMBEDDED.promise() == 60 * SECOND
    assert PER_CALL.room == 0


def test_promises_end_together_where_passes_look_at_each() -> None:
    for now in (0, 1, 60 * SECOND, 60 * SECOND + 1):
        end = EMBEDDED.promised(now)
        assert 0 <= end - now - EMBEDDED.promise() < 2 * SECOND and end % (2 * SECOND) == 0
        assert PER_CALL.promised(now) == now + PER_CALL.promise()


@pytest.mark.parametrize("pace", PACES.values(), ids=PACES)
def test_plans_say_what_the_pace_comes_to(pace: Pace) -> None:
    minutes = 2 * pace.promise(HELD) / MINUTE  # one promise missed, and another as long
    assert pace.delays().endswith(f"given up after {minutes:g} min.")
    worst = pace.pause(changing=False, since=HOUR)
    assert ("at once" if worst == 0 else f"within {worst:g} s") in pace.delays()


def test_the_figures_that_users_were_promised() -> None:
    assert "at once" in EMBEDDED.delays() and "after 2 min" in EMBEDDED.delays()
    assert "within 60 s" in PER_CALL.delays() and "after 11 min" in PER_CALL.delays()


def test_calls_are_held_only_where_they_follow_each_other_at_once() -> None:
    assert EMBEDDED.long_poll and not PER_CALL.long_poll
    for since in (0, HOUR):
        for changing in (False, True):
            assert EMBEDDED.pause(changing=changing, since=since) == 0
            assert PER_CALL.pause(changing=changing, since=since) > 0


def test_a_stack_may_be_quicker_while_something_changes_but_not_at_peace() -> None:
    quick = PER_CALL.at(0.3)
    assert quick.pause(changing=True, since=0) == quick.followed == 0.3
    assert quick.pause(changing=False, since=0) == pytest.approx(1.5)
    assert quick.pause(changing=False, since=HOUR) == PER_CALL.pause(changing=False, since=HOUR) == 60
    assert PER_CALL.at(60).pause(changing=False, since=0) == 60  # never slower than at peace
    assert replace(quick, fast=PER_CALL.fast, followed=PER_CALL.followed) == PER_CALL


def test_a_call_that_changes_a_job_is_remembered_there_and_leaves_the_presence_its_promise(world: World) -> None:
    cluster = Cluster.of(world)
    cluster.agent.join()
    job = cluster.place()
    cluster.agent.sync()
    before = cluster.presence
    cluster.world.clock.pass_(1)
    cluster.agent.sync(running(job))
    assert cluster.job(job).told_by == (cluster.agent.boot, cluster.agent.seq) and cluster.presence == before
    cluster.world.clock.pass_(PER_CALL.presence)
    cluster.agent.sync(running(job))
    assert cluster.presence.last_seen == cluster.world.at


def test_a_host_that_joins_calls_again_soon(world: World) -> None:
    cluster = Cluster.of(world, InstanceStatus.pending)
    assert cluster.agent.join()["next_sync_in"] == 2.0
    cluster.save(cluster.instance.with_(status=InstanceStatus.idle))
    assert cluster.agent.sync()["next_sync_in"] == 60.0
