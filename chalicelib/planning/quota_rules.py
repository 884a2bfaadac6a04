"""The invariant of quotas: a project's jobs never have more places or GPUs than it may have, and whoever gives one away
in a project with a quota commits that quota with it.
"""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.domain.instances import Instance
from chalicelib.domain.quotas import Quota
from chalicelib.planning.plan import Plan
from chalicelib.planning.quotas import gpus_of
from chalicelib.planning.snapshots import QueueSnapshot, Snapshot


def quotas(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    usage = snapshot.usage if isinstance(snapshot, QueueSnapshot) else None
    if usage is None:
        return
    before = {i.id: {claim.job_id for claim in i.claims} for view in snapshot.views() for i in view.instances}
    jobs, gpus = usage.all.jobs, usage.all.gpus
    most, gave = usage.quota.limits, False
    for step in plan.steps:
        signed = any(isinstance(noun, Quota) for noun in step.saves)
        for instance in (noun for noun in step.saves if isinstance(noun, Instance)):
            new = [claim for claim in instance.claims if claim.job_id not in before.get(instance.id, ())]
            before[instance.id] = {claim.job_id for claim in instance.claims}
            if new and not signed:
                yield f"instance {instance.name} gets a claim without committing its project's quota"
            gave = gave or bool(new)
            jobs += len(new)
            gpus += sum(gpus_of(instance.offer, len(claim.blocks), instance.total_blocks) for claim in new)
    if gave and most.jobs is not None and jobs > most.jobs:
        yield f"project {usage.quota.project_name} would have {jobs} jobs of at most {most.jobs}"
    if gave and most.gpus is not None and gpus > max(most.gpus, usage.all.gpus):
        yield f"project {usage.quota.project_name} would have {gpus} GPUs of at most {most.gpus}"
