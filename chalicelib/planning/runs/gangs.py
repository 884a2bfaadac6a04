"""How the nodes of a task start together, once every place is reserved: the run's decisions.

A sealed gang waits until every node has an address (the barrier). Then the addresses are published, and the jobs are
released in `startup_order`: only then does a job get its place, and its agent the task. The volumes are attached from
the seal on; if one is lost before the barrier, the attempt starts again. Every step continues from what is stored, so
another process can take over from one that dies. Whatever ends the attempt undoes the gang first, which frees the
places of jobs that weren't released; the others free theirs when they end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chalicelib.domain.gangs import Gang, GangStatus
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.jobs import Job, JobStatus, Mounted
from chalicelib.domain.reasons import JobReason, job_outcome
from chalicelib.domain.runs import RunStatus
from chalicelib.domain.volumes import Volume
from chalicelib.machines.gang import GANG
from chalicelib.machines.job import TO_START
from chalicelib.planning.jobs.nodes import address_of
from chalicelib.planning.kernel.plan import Step
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.matching.pools import READY
from chalicelib.planning.placing.claims import assignment_to
from chalicelib.planning.placing.gang_placement import CHUNK, CHUNK_WITH_DISKS, of_gang
from chalicelib.planning.runs.endings import end, finish_if_gone
from chalicelib.planning.runs.run_pass import RunPass
from chalicelib.planning.volumes.attachments import claim_volumes, give_up_early, held_early, mounted

_ENDING = (InstanceStatus.terminating, InstanceStatus.terminated)
_STARTED = (JobStatus.running, JobStatus.terminating)


def settle(this: RunPass) -> list[Step]:
    """The steps about the run's gangs, which are committed before anything else is decided about the run."""
    for gang in this.snapshot.gangs:
        if steps := list(_settled(this, gang)):
            return steps
    return []


def _settled(this: RunPass, gang: Gang) -> Iterator[Step]:
    jobs = members(this, gang)
    if gang.status is GangStatus.undone:
        if gang.places:
            yield from _undo(this, gang, jobs)
    elif gang.status is not GangStatus.released and _over(this, gang, jobs):
        yield from _undo(this, gang, jobs)
    elif _must_restart(this, gang, jobs):
        yield from _undo(this, gang, jobs, again=True)
    elif (gang.status is GangStatus.sealed and all_met(this, gang)) or (
        gang.status is GangStatus.starting
        and all(job.status in _STARTED or job.finished for job in _first_wave(this, jobs))
    ):
        volumes = _volumes(this, gang, jobs)
        if volumes is not None:
            yield from _release(this, gang, jobs, volumes)
        elif gang.status is GangStatus.sealed:
            yield from _undo(this, gang, jobs, again=True)


def await_nodes(this: RunPass) -> None:
    """End the attempt if a node can't join any more, or hasn't in time."""
    for gang in this.snapshot.gangs:
        if gang.status is GangStatus.sealed:
            for job, place in zip(members(this, gang), gang.places, strict=True):
                if why := _why_never_ready(this, gang, place):
                    end(this, job, JobReason.waiting_instance_limit_exceeded, why)
                    finish_if_gone(this, this.jobs[job.id])
        if gang.status in (GangStatus.gathering, GangStatus.sealed):
            this.check_by(gang.until)


def holds(this: RunPass) -> bool:
    """Are there places to free before the run may end?"""
    return any(gang.holds for gang in this.snapshot.gangs)


def members(this: RunPass, gang: Gang) -> list[Job]:
    """Its jobs by rank."""
    own = (job for job in this.jobs.values() if job.replica_num == gang.replica_num)
    return sorted((job for job in own if job.submission_num == gang.submission_num), key=lambda job: job.job_num)


def _over(this: RunPass, gang: Gang, jobs: Sequence[Job]) -> bool:
    """Has the attempt ended, or run out of time to be sealed?"""
    if this.run.status in (RunStatus.terminating, RunStatus.pending):
        return True
    late = gang.status is GangStatus.gathering and gang.until is not None and this.now >= gang.until
    return late or any(job.reason is not None and job_outcome(job.reason) != "done" for job in jobs)


def _must_restart(this: RunPass, gang: Gang, jobs: Sequence[Job]) -> bool:
    """Was a place lost before all were reserved, or the purchase of one refused? Then the attempt goes on without
    it."""
    if gang.status not in (GangStatus.gathering, GangStatus.sealed):
        return False
    for job, place in zip(jobs, gang.places, strict=False):
        instance = this.instances.get(place)
        if instance is not None and instance.status not in _ENDING:
            continue
        if gang.status is GangStatus.gathering or (instance is not None and _refused(instance, job)):
            return True
    return False


def _refused(instance: Instance, job: Job) -> bool:
    tried = {attempt.offer_key for attempt in job.attempts}
    return instance.for_run and instance.started_at is None and instance.offer.key in tried


# --- the barrier -----------------------------------------------------------------------------------------------------


def all_met(this: RunPass, gang: Gang) -> bool:
    found = [this.instances.get(place) for place in gang.places]
    return all(instance is not None and instance.status in READY and address_of(instance) for instance in found)


def _why_never_ready(this: RunPass, gang: Gang, place: str) -> str:
    """Why this node can't start any more; empty if it may."""
    instance = this.instances.get(place)
    if instance is None:
        return "its host no longer exists"
    if instance.status in _ENDING:
        return f"{instance.name} was ended: {instance.message or 'by a user'}"
    if gang.until is None or this.now < gang.until:
        return ""
    if instance.status not in READY:
        return f"{instance.name} hasn't reported in time"
    if address_of(instance):
        return ""
    return f"{instance.name} has no address that the other nodes could reach"


# --- the release -----------------------------------------------------------------------------------------------------


def _first_wave(this: RunPass, jobs: Sequence[Job]) -> list[Job]:
    """The jobs that start first."""
    order = this.snapshot.run_spec.configuration.startup_order
    if order == "master-first":
        return [job for job in jobs if job.job_num == 0]
    return [job for job in jobs if job.job_num > 0 or order != "workers-first"]


def _second_wave(this: RunPass, jobs: Sequence[Job]) -> list[Job]:
    first = {job.id for job in _first_wave(this, jobs)}
    return [job for job in jobs if job.id not in first]


def _volumes(this: RunPass, gang: Gang, jobs: Sequence[Job]) -> dict[str, list[Volume]] | None:
    """The volumes that each node got with its place, by job id; None: one of them is gone."""
    found: dict[str, list[Volume]] = {}
    for job, place in zip(jobs, gang.places, strict=True):
        chosen = held_early(this.starting[job.slot].volumes, this.snapshot.named.values(), job.id, place)
        if chosen is None:
            return None
        if chosen:
            found[job.id] = chosen
    return found


def _release(this: RunPass, gang: Gang, jobs: Sequence[Job], volumes: Mapping[str, list[Volume]]) -> Iterator[Step]:
    """Publish the addresses and start the next jobs, in chunks; the gang moves on with the last of them."""
    where = [this.instances[place] for place in gang.places]
    if gang.status is GangStatus.sealed:
        gang = gang.with_(addresses=tuple(map(address_of, where)), gpus=tuple(map(gpus_of, where)))
    wave = _first_wave(this, jobs) if gang.status is GangStatus.sealed else _second_wave(this, jobs)
    going = [job for job in wave if job.status is JobStatus.submitted]
    last = len(wave) == len(jobs) or gang.status is GangStatus.starting
    chunk = CHUNK_WITH_DISKS if volumes else CHUNK
    taken: dict[str, Volume] = {}
    for start in range(0, max(1, len(going)), chunk):
        draft = Draft(this.now)
        for job in going[start : start + chunk]:
            instance, chosen = where[job.job_num], [taken.get(each.id, each) for each in volumes.get(job.id, ())]
            saved, instance = claim_volumes(draft, chosen, job, instance)
            taken.update((each.id, each) for each in saved)
            _start_job(draft, job, instance, mounted(this.starting[job.slot].volumes, saved))
        if start + chunk >= len(going):
            draft.move(GANG, gang, "release" if last else "start", until=None, due_at=None)
        else:
            draft.save(gang)
        draft.wake(this.snapshot.unit)
        yield draft.step()


def gpus_of(instance: Instance) -> int:
    return len(instance.offer.instance.resources.gpus)


def _start_job(draft: Draft, job: Job, instance: Instance, volumes: tuple[Mounted, ...]) -> None:
    assignment = assignment_to(instance, instance.offer, draft.now, volumes)
    note, due_at = f"placed on {instance.name}", draft.now + TO_START
    draft.move_job(
        job, "provision", instance, note=note, assignment=assignment, message="", reserved=False, due_at=due_at
    )


# --- the undoing -----------------------------------------------------------------------------------------------------


def _undo(this: RunPass, gang: Gang, jobs: Sequence[Job], *, again: bool = False) -> Iterator[Step]:
    """Undo the gang, so that no pass can seal it, and remove its claims on machines and volumes, in chunks. `again`:
    the first node's job returns to the queue."""
    placed = {job.id for job in jobs if job.assignment is not None}
    waiting = {job.id for job in jobs if job.id not in placed}
    places, volumes = gang.places, dict(this.snapshot.named)
    size = CHUNK_WITH_DISKS if volumes else CHUNK
    for start in range(0, max(1, len(places)), size):
        draft, left = Draft(this.now), places[start + size :]
        if again and start == 0 and jobs[0].reserved:
            draft.save(jobs[0].with_(reserved=False, due_at=this.now, last_processed_at=this.now))
        for place in places[start : start + size]:
            for name, volume in volumes.items():
                volumes[name] = give_up_early(draft, volume, waiting, place)
            if (instance := this.instances.get(place)) is not None:
                for claim in instance.claims:
                    if of_gang(claim, gang) and claim.job_id not in placed:
                        draft.release(instance, claim.job_id)
        changes: dict[str, Any] = {"places": left, "until": None, "due_at": this.now if left else None}
        if start == 0 and gang.status is not GangStatus.undone:
            gang = draft.move(GANG, gang, "undo", **changes)
        else:
            draft.save(gang.with_(**changes))
        draft.wake(this.snapshot.unit, f"queue/{gang.project_id}")
        yield draft.step()
