"""A run's volume through whole passes on the simulated cloud: from its place to the proof that it is detached."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.backends.simulated.script import Fault
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import InstanceReason, JobReason, RunReason
from chalicelib.domain.runs import Run
from chalicelib.domain.volumes import Attachment, AttachmentState, Volume
from chalicelib.engine.effects.attachments import Attachments
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.volumes.attachments import AttachVolume, DetachVolume, DiskAt
from chalicelib.store import nouns
from chalicelib.store.port import Delete
from tests.world import nouns as b
from tests.world.gangs import jobs_of, task
from tests.world.ports import Books
from tests.world.volumes import REGION, Stage

ATTACHING, ATTACHED, DETACHING = AttachmentState
SIZE = b.resources(disk={"size_mib": 204_800}, cpu_arch="x86")  # type: ignore[arg-type]


class Runs(Stage):
    """With a fleet that may buy machines, and their agents as far as these tests need them."""

    def __init__(self) -> None:
        super().__init__(catalog=Books())
        offers = [offer for offer in self.cloud.offers() if offer.region == REGION]
        object.__setattr__(self.place.plane, "catalog", Books(offers))
        self.place.fleet("cloud", nodes="0..3")
        self.volume = self.created()

    def start(self, name: str = "train", **config: Any) -> Run:
        run = task(self.place, name, volumes=["data:/data"], **config)
        self.place.woken += [f"queue/{b.PROJECT}", f"run/{run.id}"]
        self.settle()
        return run

    def job(self, run: Run) -> Job:
        return jobs_of(self.place, run)[-1]

    def machine(self, run: Run) -> Instance:
        place = self.job(run).assignment
        assert place is not None
        return self.named(place.instance_id)

    def named(self, instance_id: str) -> Instance:
        fleets = self.place.plane.read.fleet_views(b.PROJECT, [instance_id])
        return next(each for fleet in fleets for each in fleet.instances if each.id == instance_id)

    def reports(self, run: Run) -> None:
        """Its machine's agent is there."""
        machine = self.machine(run)
        self.place.save(b.presence_of(machine, last=self.place.at, promise=b.DAY, facts=b.host_facts()))
        self.place.woken.append(f"instance/{machine.id}")
        self.settle()

    def ends(self, run: Run) -> None:
        """The agent reports that its task has exited, with nothing mounted."""
        job, draft = self.job(run), Draft(self.place.at)
        ending = draft.end_job(job, JobReason.done_by_runner) if job.status is not JobStatus.terminating else job
        done, freed = draft.finish_job(ending, self.place.again(self.machine(run)))
        self.place.save(done, *([freed] if freed else []))
        self.place.woken += draft.step().wake
        self.settle()

    @property
    def disk(self) -> Volume:
        return self.again(self.volume)

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        return self.disk.attachments

    @property
    def states(self) -> list[AttachmentState]:
        return [each.state for each in self.attachments]

    def plugged(self) -> list[str]:
        """The machines that the cloud shows the disk at."""
        (body,) = self.cloud.disks.all()
        return sorted(body["attached"])


@pytest.fixture
def stage() -> Runs:
    return Runs()


def test_from_the_place_to_the_next_run(stage: Runs) -> None:
    first = stage.start()
    assert stage.machine(first).disks == (stage.volume.id,)
    stage.until(lambda: stage.states == [ATTACHED])
    (one,) = stage.attachments
    assert one.device is not None and stage.plugged() and one.job_id == stage.job(first).id
    stage.reports(first)
    second = stage.start("second")
    assert stage.job(second).message == "waiting for volume `data`, which run `train` uses"
    machine = stage.machine(first)
    stage.ends(first)
    stage.until(lambda: stage.job(second).assignment is not None)
    assert stage.machine(second).id == machine.id, "which is idle now"
    assert stage.attachments[0].job_id == stage.job(second).id
    stage.until(lambda: stage.states == [ATTACHED])


@pytest.mark.parametrize("read_only", [False, True])
def test_a_read_only_volume_is_attached_so_that_nothing_can_write_it(stage: Runs, read_only: bool) -> None:
    stage.place.save(stage.disk.with_(read_only=read_only, blank=False))
    stage.start()
    stage.until(lambda: stage.states == [ATTACHED])
    device = stage.attachments[0].device
    assert device is not None and device.read_only is read_only


@pytest.mark.slow
def test_a_slow_cloud_is_waited_for_both_ways(stage: Runs) -> None:
    stage.script.attach = stage.script.detach = MINUTE
    run = stage.start()
    stage.reports(run)
    assert stage.states == [ATTACHING]
    stage.until(lambda: stage.states == [ATTACHED])
    stage.ends(run)
    assert stage.states == [DETACHING] and stage.plugged()
    stage.until(lambda: stage.states == [])
    assert stage.plugged() == [] and stage.disk.used_at is not None


def test_a_disk_that_is_still_on_its_way_to_a_machine_isnt_free(stage: Runs) -> None:
    """Its job ends before the disk has come, and the cloud takes long for both ways."""
    stage.script.attach = stage.script.detach = MINUTE
    run = stage.start()
    stage.reports(run)
    stage.ends(run)
    stage.until(lambda: stage.states == [DETACHING])
    while stage.plugged():
        assert stage.states == [DETACHING]
        stage.after(5 * SECOND)
    stage.until(lambda: stage.states == [])


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", ["attach_volume", "detach_volume"])
@pytest.mark.parametrize("error", ["Transient", "Throttled", "Bug"])
def test_an_unclear_answer_is_asked_about(stage: Runs, call: Any, error: str, when: Any) -> None:
    stage.script.faults.append(Fault(call, error, when))
    run = stage.start()
    stage.until(lambda: stage.states == [ATTACHED])
    stage.reports(run)
    stage.ends(run)
    stage.until(lambda: stage.states == [])
    assert stage.plugged() == []


@pytest.mark.parametrize("error", ["MissingPermission", "QuotaExceeded"])
def test_a_refusal_ends_the_job_and_says_why(stage: Runs, error: str) -> None:
    stage.script.faults.append(Fault("attach_volume", error))
    run = stage.start()
    stage.until(lambda: stage.job(run).reason is not None)
    job = stage.job(run)
    assert job.reason is JobReason.volume_error
    assert job.message == f"volume data: simulated: {error} before attach_volume"
    stage.until(lambda: stage.states == [])


@pytest.mark.slow
def test_a_disk_that_never_comes_ends_the_job_in_time(stage: Runs) -> None:
    stage.script.attach = b.DAY
    run = stage.start()
    stage.reports(run)
    stage.until(lambda: stage.job(run).reason is not None)
    assert stage.job(run).message == "volume data: it wasn't attached to cloud-0 within 5 minutes"
    stage.script.attach = stage.script.detach = 0
    stage.ends(run)
    stage.until(lambda: stage.states == [])


def test_an_attempt_that_nobody_made_is_repeated(stage: Runs) -> None:
    stage.lost = lambda effect: isinstance(effect, AttachVolume | DetachVolume)
    run = stage.start()
    stage.reports(run)
    assert stage.states == [ATTACHING]
    stage.lost = lambda effect: False
    stage.until(lambda: stage.states == [ATTACHED])
    stage.lost = lambda effect: isinstance(effect, AttachVolume | DetachVolume)
    stage.ends(run)
    assert stage.states == [DETACHING]
    stage.lost = lambda effect: False
    stage.until(lambda: stage.states == [])


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.slow
def test_a_machine_that_ends_waits_for_its_disk(stage: Runs, noted: bool) -> None:
    """Whether or not anybody noted what its provider calls it."""
    run = stage.start()
    stage.reports(run)
    stage.until(lambda: stage.states == [ATTACHED])
    stage.script.detach = MINUTE
    machine = stage.machine(run)
    if not noted:
        stage.place.save(stage.named(machine.id).with_(handles=()))
    end(stage, machine)
    stage.ends(run)
    assert stage.states == [DETACHING] and stage.named(machine.id).status is InstanceStatus.terminating
    assert stage.cloud.machines(), "the machine is still there"
    stage.until(lambda: stage.states == [])
    stage.until(lambda: not stage.cloud.machines())
    assert stage.place.again(machine).status is InstanceStatus.terminated


@pytest.mark.slow
def test_but_not_for_ever(stage: Runs) -> None:
    run = stage.start()
    stage.reports(run)
    stage.until(lambda: stage.states == [ATTACHED])
    stage.script.detach = b.DAY
    machine = stage.machine(run)
    end(stage, machine)
    stage.ends(run)
    ending = stage.place.at
    stage.until(lambda: not stage.cloud.machines())
    assert stage.place.at - ending >= 4 * MINUTE
    stage.until(lambda: stage.states == [])
    assert stage.place.again(machine).disks == (), "the end of the machine is the proof"


def test_a_machine_that_vanishes_gives_its_disk_back(stage: Runs) -> None:
    run = stage.start()
    stage.until(lambda: stage.states == [ATTACHED])
    for machine in stage.cloud.machines():
        stage.cloud.lose(machine["id"])
    stage.until(lambda: stage.job(run).reason is not None, step=MINUTE)
    stage.until(lambda: stage.states == [], step=MINUTE)
    assert stage.plugged() == []


@pytest.mark.slow
def test_a_spot_machine_that_is_gone_is_waited_for_by_nobody(stage: Runs) -> None:
    """Not by itself though its job has a disk there, and so not by the job, by the disk or by the next attempt."""
    stage.place.fleet("spot", nodes="0..3", spot_policy="spot")
    run = stage.start(spot_policy="spot", fleets=["spot"], retry={"on_events": ["interruption"], "duration": "1h"})
    stage.reports(run)
    stage.until(lambda: stage.states == [ATTACHED])
    stage.after(MINUTE)
    first, gone = stage.job(run), stage.machine(run)
    stage.cloud.lose(next(handle.id for handle in gone.handles if handle.kind == "vm"))
    stage.place.save(stage.place.again(b.presence_of(gone)).with_(seen_until=stage.place.at))
    stage.place.woken.append(f"instance/{gone.id}")
    began = stage.place.at
    stage.until(lambda: stage.job(run).assignment is not None and stage.job(run).id != first.id)
    stage.until(lambda: stage.states == [ATTACHED])
    assert stage.place.at - began < MINUTE
    assert stage.place.again(gone).status is InstanceStatus.terminated
    assert stage.place.again(first).reason is JobReason.interrupted_by_no_capacity
    assert stage.attachments[0].instance_id == stage.machine(run).id != gone.id


@pytest.mark.slow
def test_a_silent_host_keeps_its_disk_until_its_machine_is_gone(stage: Runs) -> None:
    """Its task may go on writing to it."""
    run = stage.start()
    stage.reports(run)
    stage.until(lambda: stage.states == [ATTACHED])
    machine = stage.machine(run)
    stage.place.save(stage.place.again(b.presence_of(machine)).with_(seen_until=stage.place.at))
    stage.place.woken.append(f"instance/{machine.id}")
    stage.until(lambda: stage.job(run).reason is JobReason.instance_unreachable, step=MINUTE)
    stage.after(5 * MINUTE)
    assert stage.job(run).status is JobStatus.terminating
    assert stage.states == [ATTACHED] and stage.plugged()
    stage.until(lambda: stage.states == [], step=MINUTE)
    assert stage.place.again(machine).status is InstanceStatus.terminated, "the end of the machine is the proof"
    assert stage.job(run).finished and stage.plugged() == []


@pytest.mark.parametrize("some", [False, True])
def test_a_machine_whose_creation_was_cut_off_gets_its_disk_all_the_same(stage: Runs, some: bool) -> None:
    """It works, and nobody noted what its provider calls it."""
    stage.lost = lambda effect: isinstance(effect, AttachVolume)
    run = stage.start()
    stage.reports(run)
    machine = stage.named(stage.machine(run).id)
    handles = tuple(handle for handle in machine.handles if handle.kind != "vm") if some else ()
    stage.place.save(machine.with_(handles=handles))
    stage.lost = lambda effect: False
    stage.until(lambda: stage.states == [ATTACHED])
    stage.ends(run)
    stage.until(lambda: stage.states == [])
    assert stage.plugged() == []


def test_a_provider_that_forgets_a_disk_once_proves_nothing(stage: Runs) -> None:
    run = stage.start()
    stage.reports(run)
    stage.until(lambda: stage.states == [ATTACHED])
    stage.script.detach = b.DAY
    stage.script.forgets = 1
    stage.ends(run)
    stage.after(MINUTE)
    assert stage.states == [DETACHING] and stage.plugged()


def test_a_purchase_that_is_refused_frees_the_volume_for_the_next_offer(stage: Runs) -> None:
    stage.script.faults.append(Fault("create", "InsufficientCapacity"))
    run = stage.start()
    stage.until(lambda: stage.states == [ATTACHED])
    (one,) = stage.attachments
    assert one.instance_id == stage.machine(run).id and one.job_id == stage.job(run).id


@pytest.mark.parametrize("state", [ATTACHING, ATTACHED])
@pytest.mark.parametrize("reason", [RunReason.stopped_by_user, RunReason.aborted_by_user])
def test_a_run_that_is_stopped_gives_its_volume_back(stage: Runs, reason: RunReason, state: AttachmentState) -> None:
    if state is ATTACHING:
        stage.script.attach = b.DAY
    run = stage.start()
    stage.reports(run)
    stage.until(lambda: stage.states == [state])
    draft = Draft(stage.place.at)
    draft.move_run(stage.place.again(run), "end", reason=reason)
    stage.place.save(*draft.step().saves)
    stage.place.woken.append(f"run/{run.id}")
    stage.settle()
    assert stage.job(run).status is JobStatus.terminating
    assert stage.states == [state], "its agent may still be at work there"
    stage.script.attach = 0
    stage.ends(run)
    stage.until(lambda: stage.states == [])
    assert stage.plugged() == []


@pytest.mark.parametrize("recorded", [True, False])
def test_the_provider_isnt_asked_for_a_machine_that_is_over(stage: Runs, recorded: bool) -> None:
    """It may list it no more, and a disk is taken away all the same."""
    run = stage.start()
    stage.until(lambda: stage.states == [ATTACHED])
    stage.reports(run)
    machine, left = stage.machine(run), list[DetachVolume]()
    stage.lost = lambda effect: isinstance(effect, DetachVolume) and not left.append(effect)  # type: ignore[func-returns-value]
    stage.ends(run)
    stage.until(lambda: bool(left))
    there = stage.place.again(machine)
    stage.place.save(there.with_(status=InstanceStatus.terminated))
    if not recorded:
        stage.place.store.commit([Delete(nouns.key_of(there))])
    stage.script.faults.append(Fault("list_owned", "Transient", times=9))
    assert isinstance(Attachments(stage.acting).move(left[-1]), DiskAt)


def end(stage: Runs, machine: Instance) -> None:
    draft = Draft(stage.place.at)
    draft.end_instance(stage.named(machine.id), InstanceReason.terminated_by_user)
    stage.place.save(*draft.step().saves)
    stage.place.woken += draft.step().wake
    stage.settle()
