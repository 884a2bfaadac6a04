"""Volumes, and jobs that name them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Handle, Instance
from chalicelib.domain.instants import MINUTE
from chalicelib.domain.jobs import Job
from chalicelib.domain.noun import Noun
from chalicelib.domain.volumes import Attachment, AttachmentState, Volume, VolumeStatus
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.volumes.snapshot import VolumeSnapshot
from tests.world import nouns as b

ATTACHING, ATTACHED, DETACHING = AttachmentState


def volume(name: str = "data", **rest: Any) -> Volume:
    """An active one, which nobody has."""
    filled = {
        "backend": "aws",
        "region": "eu",
        "size_gib": 100,
        "status": VolumeStatus.active,
        "handle": Handle(kind="disk", id=f"vol-{name}"),
        "created_at": b.NOW,
        "last_processed_at": b.NOW,
        "active_at": b.NOW,
        "due_at": b.NOW + b.DAY,
        "version": 1,
    }
    return Volume(id=derive(name, "volume"), project_id=b.PROJECT, name=name, configuration="{}", **{**filled, **rest})


def attachment(job: Job, instance: Instance, state: AttachmentState = ATTACHED, **rest: Any) -> Attachment:
    return Attachment(
        instance_id=instance.id,
        instance_name=instance.name,
        instance_num=instance.num,
        fleet_id=instance.fleet_id,
        fleet_name=instance.fleet_name,
        job_id=job.id,
        run_id=job.run_id,
        run_name=job.run_name,
        replica_num=job.replica_num,
        job_num=job.job_num,
        submission_num=job.submission_num,
        state=state,
        **{"since": b.NOW, "deadline": b.NOW + 5 * MINUTE, **rest},
    )


def known(*found: Volume) -> dict[str, Volume]:
    return {each.name: each for each in found}


def snapshot_of(of: Volume, *beside: Noun, now: int = b.NOW) -> VolumeSnapshot:
    """A volume with the jobs and machines that it is attached for and to."""
    return VolumeSnapshot(
        now,
        of,
        b.FACTS["aws"],
        jobs={job.id: job for job in beside if isinstance(job, Job)},
        instances={instance.id: instance for instance in beside if isinstance(instance, Instance)},
    )


def saved(plan: Plan, kind: type) -> list[Any]:
    return [noun for step in plan.steps for noun in step.saves if isinstance(noun, kind)]


def effects(plan: Plan) -> list[Any]:
    return [effect for step in plan.steps for effect in step.effects]


def woken(plan: Plan) -> set[str]:
    found: Iterable[str] = (unit for step in plan.steps for unit in step.wake)
    return {unit.partition("/")[0] for unit in found}
