"""The network to a host is cut for a while, in virtual time: short, and nothing is lost; three minutes, and its job is
given up after two, tried elsewhere or again if its user wants that, and ended on the host once that is back.
"""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.reasons import JobReason
from tests.simulation.hosts import Work
from tests.simulation.quiet import Quiet

HELD = 20.0  # a call that the server held when the cut came ends by itself after this, and counts as heard until then
SILENCE = 120.0 + HELD  # until a job is given up, at most
RETURN = 90.0  # until an agent has noticed that it may speak again, and all has been settled


def running(seconds: float = 10_000, **more: Any) -> Quiet:
    """A job on a host that somebody owns."""
    plane = Quiet()
    plane.host()
    plane.until(plane.is_("idle"), 60)
    plane.task(Work(seconds=seconds), **more)
    plane.until(plane.placed("running"), 60)
    return plane


def cut(plane: Quiet, seconds: float) -> None:
    plane.agent.cut_off_until = plane.world.seconds() + seconds


def test_a_cut_of_three_minutes_costs_the_job_but_not_the_host() -> None:
    plane = running()
    cut(plane, 180)
    took = plane.until(plane.placed("failed"), SILENCE + 5)
    assert took > SILENCE - HELD - 30 and plane.job.reason is JobReason.instance_unreachable
    assert "has been silent for too long" in plane.job.message
    assert plane.instance.unreachable and plane.instance.status == "idle", (
        "the host is kept, and nothing is placed there"
    )
    assert [task.state for task in plane.agent.tasks.values()] == ["running"], "nobody could tell it"
    plane.until(lambda: not plane.agent.tasks, 180 - took + RETURN)
    plane.until(lambda: not plane.instance.unreachable, 600)
    plane.task(name="next")
    plane.until(plane.placed("done"), 60)


def test_a_job_that_is_to_be_tried_again_waits_for_the_host() -> None:
    plane = running(seconds=200, retry=True)
    first = plane.job.id
    cut(plane, 180)
    plane.until(lambda: plane.scene.watch.jobs[first].status == "failed", SILENCE + 5)
    plane.until(lambda: plane.job.submission_num == 1, 60)
    plane.until(plane.placed("running"), 1200)
    assert len(plane.agent.tasks) == 1, "the first try was ended before the second began"
    plane.until(plane.ran("done"), 300)


@pytest.mark.parametrize("seconds", [20, 90])
def test_a_short_cut_costs_nothing(seconds: float) -> None:
    plane = running(seconds=150)
    cut(plane, seconds)
    plane.until(plane.placed("done"), 200 + RETURN)
    assert (plane.job.submission_num, plane.job.disconnected_at) == (0, None)
    plane.until(lambda: not plane.instance.unreachable, RETURN)


def test_what_ended_during_the_cut_is_told_afterwards() -> None:
    plane = running(seconds=30)
    cut(plane, 90)
    plane.until(lambda: all(task.state == "exited" for task in plane.agent.tasks.values()), 60)
    assert plane.job.status == "running"
    plane.until(plane.placed("done"), 90 + RETURN)
