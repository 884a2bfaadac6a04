"""Places: who holds which block of which machine."""

from __future__ import annotations

from chalicelib.domain.gangs import Gang
from chalicelib.domain.instances import Claim, Instance, InstanceStatus
from chalicelib.domain.jobs import LIVE_ON_INSTANCE, Job
from chalicelib.planning.placing.gang_placement import of_gang
from tests.simulation.stories import Story
from tests.simulation.watch import Commit
from tests.simulation.world import Invariant

BLOCKS_ONCE = Invariant("blocks once", "a block belongs to one job at a time")
CLAIMS_AGREE = Invariant(
    "claims agree", "a job that holds a place has its claim there, and a claim belongs to such a job"
)
PROJECTS_APART = Invariant("projects apart", "a job runs on machines of its own project")


class Placing(Story):
    def committed(self, commit: Commit) -> None:
        for _, instance in commit.of(Instance):
            self._claims(instance)
        for _, job in commit.of(Job):
            if job.status in LIVE_ON_INSTANCE and job.assignment is not None:
                instance = self.watch.instances[job.assignment.instance_id]
                if job.id not in {claim.job_id for claim in instance.claims}:
                    raise CLAIMS_AGREE.broken(
                        f"job {job.name} is {job.status} on {instance.name} without a claim there"
                    )

    def _reserved(self, claim: Claim, instance: Instance) -> bool:
        """Does the claim belong to a node whose gang still has this place? Its job isn't placed yet."""
        gangs: list[Gang] = list(self.watch.known.get(Gang, {}).values())
        return any(of_gang(claim, gang) and instance.id in gang.places for gang in gangs)

    def _claims(self, instance: Instance) -> None:
        blocks = [block for claim in instance.claims for block in claim.blocks]
        if len(blocks) != len(set(blocks)) or not set(blocks) <= set(range(instance.total_blocks)):
            raise BLOCKS_ONCE.broken(f"instance {instance.name} has given away the blocks {blocks}")
        if instance.status is InstanceStatus.terminated:
            return
        for claim in instance.claims:
            job = self.watch.jobs.get(claim.job_id)
            if job is not None and job.assignment is None and self._reserved(claim, instance):
                continue
            if job is None or job.finished or job.assignment is None or job.assignment.instance_id != instance.id:
                raise CLAIMS_AGREE.broken(f"instance {instance.name} holds a place for {claim.job_id}, which is {job}")
            if job.project_id != instance.project_id:
                raise PROJECTS_APART.broken(f"job {job.name} is on {instance.name}, which is another project's")
