"""What may happen to a job's container, as the guide on Kubernetes lists it: how the job ends, and what begins it anew.

`test_containers.py` has the images that can't be pulled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.simulated.script import Fault
from chalicelib.backends.spi import MachineChange
from chalicelib.domain import keys
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE
from chalicelib.domain.reasons import JobReason
from chalicelib.engine.machine_changes import effects_of
from chalicelib.engine.silent_agents import silent_units
from chalicelib.store import nouns
from tests.engine.test_containers import Plane
from tests.usecases.cluster import Agent, exited, running

ONCE_TAKEN_BACK = {"on_events": ["interruption"], "duration": "1h"}
AFTER_ERRORS = {"on_events": ["error"], "duration": "1h"}


class Contained:
    """A job that runs in a container, and its agent."""

    def __init__(self, folder: Path, retry: dict[str, Any], started: bool = True, plane: Plane | None = None) -> None:
        self.plane = plane = plane or Plane(folder)
        plane.order(image="example.com/it", retry=retry)
        for _ in range(3):  # a market is asked first
            plane.act()
        self.first = plane.job
        self.agent = Agent(plane.rig.world, plane.instance.id)
        if started:
            self.agent.join()
            plane.decide()
            self.report()
            plane.after(1)
            assert plane.job.status == "running"

    def report(self, task: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
        answer = self.agent.sync(task or running(self.first), **parts)
        self.plane.decide()
        return answer

    def ends(self) -> tuple[JobReason | None, str]:
        """How the job ends while its agent says nothing more."""
        world = self.plane.rig.world
        for _ in range(60):
            if self.plane.job.finished:
                break
            world.woken.extend(silent_units(world.store, world.clock))
            self.plane.after(15)
            self.plane.act()
        assert self.plane.job.finished
        return self.plane.job.reason, self.plane.job.message

    @property
    def begins_anew(self) -> bool:
        status: str = self.plane.run["status"]
        return status == "pending" or len(self.plane.run["jobs"][0]["job_submissions"]) > 1


@pytest.mark.parametrize(("retry", "again"), [(ONCE_TAKEN_BACK, False), (AFTER_ERRORS, True)])
@pytest.mark.slow
def test_one_that_exits_by_itself_fails_its_job_and_says_why(
    tmp_path: Path, retry: dict[str, Any], again: bool
) -> None:
    contained = Contained(tmp_path, retry)
    contained.plane.cloud.exit(contained.plane.instance.id, "it has used more memory than it may")
    reason, message = contained.ends()
    assert reason is JobReason.instance_unreachable and "it has used more memory than it may" in message
    assert contained.begins_anew is again


def test_a_job_in_one_that_is_drained_has_time_to_stop_and_begins_anew(tmp_path: Path) -> None:
    contained = Contained(tmp_path, ONCE_TAKEN_BACK)
    plane = contained.plane
    contained.report(taken_back_in=0.0)
    plane.act()
    assert len(plane.cloud.machines()) == 1 and plane.cloud.machines()[0]["ends_at"] is None, "it isn't ended yet"
    (task,) = contained.report()["tasks"]
    assert task["want"] == "stop"
    plane.after(5)
    contained.report(exited(contained.first, 143))
    assert plane.job.reason is JobReason.interrupted_by_no_capacity and plane.job.finished
    assert contained.begins_anew
    plane.act()
    plane.act()
    assert plane.cloud.machines() == [], "nothing holds it once its job has stopped"


@pytest.mark.slow
def test_one_that_is_announced_to_go_interrupts_its_job(tmp_path: Path) -> None:
    contained = Contained(tmp_path, ONCE_TAKEN_BACK)
    contained.plane.cloud.interrupt(contained.plane.instance.id)
    reason, _ = contained.ends()
    assert reason is JobReason.interrupted_by_no_capacity and contained.begins_anew


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.slow
def test_one_that_is_gone_interrupts_its_job_with_the_providers_words(tmp_path: Path, started: bool) -> None:
    contained = Contained(tmp_path, ONCE_TAKEN_BACK, started)
    (machine,) = contained.plane.cloud.machines()
    contained.plane.rig.world.at += MINUTE  # so that it can't be one that isn't shown yet
    contained.plane.cloud.lose(machine["id"])
    reason, message = contained.ends()
    assert reason is JobReason.interrupted_by_no_capacity
    assert "there is no machine" in message and machine["id"] in message
    assert contained.begins_anew


@pytest.mark.slow
def test_one_that_loses_its_bid_interrupts_its_job(tmp_path: Path) -> None:
    """Its provider calls that a lack of capacity, as it does while the container hasn't run."""
    contained = Contained(tmp_path, ONCE_TAKEN_BACK)
    cloud = contained.plane.cloud
    (machine,) = cloud.machines()
    cloud._store.put(machine["id"], {**machine, "short": True})
    reason, message = contained.ends()
    assert reason is JobReason.interrupted_by_no_capacity and "was left" in message and contained.begins_anew


@pytest.mark.slow
def test_one_on_a_host_that_doesnt_answer_is_an_error(tmp_path: Path) -> None:
    contained = Contained(tmp_path, AFTER_ERRORS)
    reason, message = contained.ends()
    assert reason is JobReason.instance_unreachable and "silent for too long" in message
    assert contained.begins_anew


def test_a_job_that_ended_in_one_that_is_taken_back_wasnt_interrupted(tmp_path: Path) -> None:
    contained = Contained(tmp_path, ONCE_TAKEN_BACK)
    contained.report(exited(contained.first, 3), taken_back_in=0.0)
    assert contained.plane.job.reason is JobReason.container_exited_with_error
    assert not contained.begins_anew


def test_a_job_whose_container_a_user_ended_wasnt_interrupted(tmp_path: Path) -> None:
    contained = Contained(tmp_path, ONCE_TAKEN_BACK)
    plane = contained.plane
    plane.rig.ok("P/runs/stop", {"runs_names": ["work"], "abort": False})
    plane.decide()
    contained.report(taken_back_in=0.0)
    (machine,) = plane.cloud.machines()
    plane.cloud.lose(machine["id"])
    reason, _ = contained.ends()
    assert reason is JobReason.terminated_by_user and not contained.begins_anew


@pytest.mark.parametrize("error", ["QuotaExceeded", "InsufficientCapacity"])
def test_one_that_is_refused_leads_to_the_next_offer_with_the_providers_words(tmp_path: Path, error: str) -> None:
    plane = Plane(tmp_path)
    plane.script.faults.append(Fault("create", error))
    plane.order(image="example.com/it")
    plane.act()
    (attempt,) = plane.job.attempts
    assert attempt.error == f"simulated: {error} before create"
    plane.act()
    assert plane.job.assignment is not None and plane.job.assignment.offer.key != attempt.offer_key
    assert len(plane.cloud.machines()) == 1


def test_what_a_provider_reports_is_acted_on_at_once(tmp_path: Path) -> None:
    """Without it the job would end when its agent is missed, and the container's end would be checked again later."""
    contained = Contained(tmp_path, AFTER_ERRORS)
    plane, world = contained.plane, contained.plane.rig.world
    instance_id = plane.instance.id

    def report(gone: bool) -> list[str]:
        changes = [MachineChange(instance_id, gone), MachineChange("of another installation", gone)]
        found = list(effects_of(world.store, plane.accounts, changes, world.now()))
        for effect in found:
            plane.executor.execute(effect)
        return [type(each).__name__ for each in found]

    assert report(gone=False) == ["Describe"] and plane.job.status == "running", "nothing has changed"
    plane.cloud.exit(instance_id, "it has used more memory than it may")
    assert report(gone=False) == ["Describe"]
    plane.decide()
    assert "it has used more memory than it may" in plane.job.message
    assert plane.instance.status is InstanceStatus.terminating
    assert report(gone=False) == [], "it is being removed already"
    assert report(gone=True) == ["Terminate"]
    ended = nouns.find(world.store, Instance, keys.instance(instance_id))
    assert ended is not None and ended.status is InstanceStatus.terminated and report(gone=True) == []
