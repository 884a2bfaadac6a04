"""A look at a run of one job."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.reasons import JobReason
from chalicelib.domain.runs import ReplicaRetry, RunStatus
from chalicelib.machines.job import OVERTIME
from chalicelib.planning.runs.run import decide_run
from chalicelib.planning.runs.snapshot import RunSnapshot
from tests.planning.situations.kit import BEFORE, NOW, Decided, placed, situation
from tests.world import nouns as b

RETRY = {"on_events": ["error"], "duration": "2h"}


def run(
    status: str = "running",
    job: str = "running",
    *,
    machine: str | None = "busy",
    seen: int | None = 60,
    of: dict[str, Any] | None = None,
    on: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    profile: dict[str, Any] | None = None,
    **fields: Any,
) -> Decided:
    """A run of one job. `machine`: the status of what it is on; None: it is nowhere. `of`: the run's, `on`: its."""
    spec = b.run_spec(profile, **(config or {}))
    one = b.run(**{"submitted_at": BEFORE, "last_processed_at": BEFORE, "status": RunStatus(status), **(of or {})})
    first = b.job(one, **{"due_at": None}).with_(status=JobStatus(job), **fields)
    instances, presences = {}, {}
    if machine is not None:
        at = b.machine(0, **{"started_at": BEFORE, "status": InstanceStatus(machine or "idle"), **(on or {})})
        first = placed(at, first).with_(**fields)
        if machine:
            instances[at.id] = b.holding(at, first).with_(status=at.status)
        if seen is not None:
            presences[at.id] = b.presence_of(at, last=NOW + (seen - 60) * SECOND)
    snapshot = RunSnapshot(NOW, one, spec, (b.job_spec(spec),), (first,), instances, presences)
    return snapshot, decide_run(snapshot)


FAILED: dict[str, Any] = {
    "reason": JobReason.container_exited_with_error,
    "exit_status": 3,
    "finished_at": NOW,
    "last_processed_at": NOW,
}
RETRIED: dict[str, Any] = {"config": {"retry": RETRY}}

situation("a run whose job waits", run, "submitted", "submitted", machine=None, message="no room")
situation(
    "a run whose job runs",
    run,
    running_at=BEFORE,
    of={"due_at": NOW},
    comes_to="train: fleet_id, fleet_name; again in 60.000001 s",
)
situation("a run whose job ran for too long", run, running_at=BEFORE, config={"max_duration": "50m"})
situation(
    "a run whose job may run for an hour, at its end",
    run,
    running_at=NOW - HOUR - OVERTIME - 0,
    config={"max_duration": "1h"},
)
situation(
    "a run whose host is silent",
    run,
    seen=-1,
    running_at=BEFORE,
    comes_to="train-0-0: disconnected_at; train: fleet_id, fleet_name; again in 60 s",
)
situation(
    "a run whose spot machine has been silent for too long",
    run,
    running_at=BEFORE,
    seen=-200,
    disconnected_at=NOW - 10 * MINUTE,
    on={"offer": b.offer(has=b.resources(spot=True))},
)
situation(
    "a run whose machine is unknown",
    run,
    machine="",
    running_at=BEFORE,
    comes_to="train-0-0 running → failed (instance_unreachable); train running → failed (job_failed)",
)

situation(
    "a run whose job has failed for too long",
    run,
    job="failed",
    **RETRIED,
    **{**FAILED, "finished_at": NOW - 3 * HOUR},
    comes_to="train running → failed (retry_limit_exceeded)",
)
situation(
    "a run that has waited",
    run,
    "pending",
    "failed",
    of={"resume_at": NOW, "retries": (ReplicaRetry(replica=0, attempt=1, resume_at=NOW),)},
    **RETRIED,
    **FAILED,
)
situation(
    "a run whose replica has a place again",
    run,
    job="provisioning",
    provisioned_at=NOW,
    of={"retries": (ReplicaRetry(replica=0, attempt=1),)},
    **RETRIED,
)

LEAVING: dict[str, Any] = {"reason": JobReason.terminated_by_user, "stop_sent_at": BEFORE}
