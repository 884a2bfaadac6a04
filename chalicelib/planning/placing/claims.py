"""A job's place, stored twice: as a claim on its machine, and as the job's assignment to it."""

from __future__ import annotations

from chalicelib.domain.instances import Claim, Instance
from chalicelib.domain.instants import Micros
from chalicelib.domain.jobs import Assignment, Mounted
from chalicelib.domain.offers import Offer
from chalicelib.planning.matching.queued_job import QueuedJob


def claim_of(item: QueuedJob, blocks: tuple[int, ...]) -> Claim:
    job = item.job
    return Claim.unvalidated(
        job_id=job.id,
        run_id=job.run_id,
        replica_num=job.replica_num,
        job_num=job.job_num,
        submission_num=job.submission_num,
        blocks=blocks,
        ports=tuple([app.port for app in item.spec.app_specs]),
    )


def assignment_to(instance: Instance, offer: Offer, now: Micros, volumes: tuple[Mounted, ...] = ()) -> Assignment:
    """The assignment of a job to an instance. `offer`: its share of the machine's."""
    return Assignment.unvalidated(
        instance_id=instance.id,
        instance_name=instance.name,
        fleet_id=instance.fleet_id,
        fleet_name=instance.fleet_name,
        offer=offer,
        hostname=instance.hostname,
        internal_ip=instance.internal_ip,
        zone=instance.zone,
        host=instance.host,
        assigned_at=now,
        volumes=volumes,
    )
