"""A look at a run of one job."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.reasons import InstanceReason, JobReason, RunReason
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
            presences[at.id] = b.heard(at, last=NOW + (seen - 60) * SECOND)
    snapshot = RunSnapshot(NOW, one, spec, (b.job_spec(spec),), (first,), instances, presences)
    return snapshot, decide_run(snapshot)


FAILED: dict[str, Any] = {
    "reason": JobReason.container_exited_with_error,
    "exit_status": 3,
    "finished_at": NOW,
    "last_processed_at": NOW,
}
RETRIED: dict[str, Any] = {"config": {"retry": RETRY}}
SILENT: dict[str, Any] = {"seen": -90, "disconnected_at": NOW - MINUTE}

situation("a run whose job waits", run, "submitted", "submitted", machine=None, message="no room")
situation("a run whose job has a place", run, "submitted", "provisioning", provisioned_at=NOW)
situation("a run whose job pulls its image", run, "provisioning", "pulling", pulling_at=NOW)
situation("a run whose job runs", run, running_at=BEFORE, of={"due_at": NOW})
situation(
    "a run whose job runs is looked at in time",
    run,
    running_at=BEFORE,
    of={"due_at": NOW + SECOND, "fleet_id": b.fleet("cloud").id},
)
situation("a run whose job took too long to start", run, "provisioning", "provisioning")
situation("a run whose job took too long to pull", run, "provisioning", "pulling", pulling_at=BEFORE)
situation(
    "a run whose job waits for its machine",
    run,
    "submitted",
    "provisioning",
    machine="pending",
    seen=None,
    on={"started_at": None, "deadline": NOW + MINUTE},
)
situation(
    "a run whose job waits for its machine since it came up",
    run,
    "submitted",
    "provisioning",
    on={"started_at": NOW - MINUTE},
)
situation("a run whose job ran for too long", run, running_at=BEFORE, config={"max_duration": "50m"})
situation("a run whose job may run for a while yet", run, running_at=BEFORE, config={"max_duration": "2h"})
for name, over in (("in its last moment", -1), ("at its end", 0)):
    since = NOW - HOUR - OVERTIME - over
    situation(f"a run whose job may run for an hour, {name}", run, running_at=since, config={"max_duration": "1h"})
    untold = {"provisioned_at": since, "config": {"max_duration": "1h"}}
    situation(f"a run whose job may run for an hour and hasn't said since when, {name}", run, **untold)
situation("a run whose host is silent", run, seen=-1, running_at=BEFORE)
situation("a run whose host reports again", run, running_at=BEFORE, disconnected_at=BEFORE)
situation(
    "a run whose host has been silent for a while", run, seen=-90, running_at=BEFORE, disconnected_at=NOW - 30 * SECOND
)
situation(
    "a run whose host has been silent for too long",
    run,
    running_at=BEFORE,
    seen=-200,
    disconnected_at=NOW - 10 * MINUTE,
)
situation(
    "a run whose spot machine has been silent for too long",
    run,
    running_at=BEFORE,
    seen=-200,
    disconnected_at=NOW - 10 * MINUTE,
    on={"offer": b.offer(has=b.resources(spot=True))},
)
situation("a run whose machine is unknown", run, machine="", running_at=BEFORE)
GONE: dict[str, Any] = {"machine": "terminating", "running_at": BEFORE}
situation("a run whose machine is gone", run, on={"message": "no power", "reason": InstanceReason.error}, **GONE)
situation("a run whose machine is gone without a word", run, on={"reason": InstanceReason.idle_timeout}, **GONE)
situation("a run whose machine a user ended", run, on={"reason": InstanceReason.terminated_by_user}, **GONE)
situation("a run whose machine never came up", run, on={"reason": InstanceReason.no_offers, "started_at": None}, **GONE)
situation(
    "a run whose spot machine was reclaimed",
    run,
    on={"message": "reclaimed", "offer": b.offer(has=b.resources(spot=True))},
    **GONE,
)

situation("a run whose job is done", run, job="done", reason=JobReason.done_by_runner, finished_at=NOW)
situation("a run whose job has failed", run, job="failed", **FAILED)
situation("a run whose job has failed and is tried again", run, job="failed", **RETRIED, **FAILED)
situation(
    "a run whose job has failed for too long", run, job="failed", **RETRIED, **{**FAILED, "finished_at": NOW - 3 * HOUR}
)
situation(
    "a run whose job has failed once more",
    run,
    job="failed",
    of={"retries": (ReplicaRetry(replica=0, attempt=2),)},
    **RETRIED,
    **FAILED,
)
situation(
    "a run that waits",
    run,
    "pending",
    "failed",
    of={"resume_at": NOW + MINUTE, "retries": (ReplicaRetry(replica=0, attempt=1, resume_at=NOW + MINUTE),)},
    **RETRIED,
    **FAILED,
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

STOPPED: dict[str, Any] = {"reason": RunReason.stopped_by_user}
ABORTED: dict[str, Any] = {"reason": RunReason.aborted_by_user}
LEAVING: dict[str, Any] = {"reason": JobReason.terminated_by_user, "stop_sent_at": BEFORE}
situation("a run that is stopped", run, "terminating", of=STOPPED)
situation("a run that is stopped with its own patience", run, "terminating", of=STOPPED, config={"stop_duration": "7s"})
situation(
    "a run that is stopped with its profile's patience", run, "terminating", of=STOPPED, profile={"stop_duration": "9s"}
)
situation("a run that is stopped and takes its time", run, "terminating", of=STOPPED, config={"stop_duration": "off"})
situation("a run that is aborted", run, "terminating", of=ABORTED)
situation("a run that is stopped before it had a place", run, "terminating", "submitted", machine=None, of=STOPPED)
situation(
    "a run that is stopped before its machine came up",
    run,
    "terminating",
    "provisioning",
    machine="pending",
    seen=None,
    on={"started_at": None},
    of=STOPPED,
)
situation(
    "a run that is aborted while it leaves",
    run,
    "terminating",
    "terminating",
    of=ABORTED,
    kill_at=NOW + HOUR,
    **LEAVING,
)
situation(
    "a run that is aborted while it leaves as it likes",
    run,
    "terminating",
    "terminating",
    of=ABORTED,
    kill_at=None,
    **LEAVING,
)
situation("a run that leaves", run, "terminating", "terminating", of=STOPPED, kill_at=NOW + MINUTE, **LEAVING)
situation(
    "a run that leaves a host that is lost",
    run,
    "terminating",
    "terminating",
    of=STOPPED,
    seen=-200,
    disconnected_at=NOW - 10 * MINUTE,
    kill_at=NOW,
    **LEAVING,
)
situation(
    "a run that leaves a machine that is gone",
    run,
    "terminating",
    "terminating",
    machine="terminated",
    of=STOPPED,
    kill_at=NOW,
    **LEAVING,
)
situation(
    "a run that has left",
    run,
    "terminating",
    "terminated",
    of={**STOPPED, "retries": (ReplicaRetry(attempt=1),)},
    finished_at=NOW,
    **LEAVING,
)
situation("a run that is over", run, "done", "done", reason=JobReason.done_by_runner)

situation(
    "a run of a fleet that has failed and is tried again, wherever",
    run,
    job="failed",
    of={"fleet_id": b.fleet("cloud").id, "fleet_name": "cloud", "message": "old"},
    **RETRIED,
    **FAILED,
)
