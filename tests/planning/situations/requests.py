"""What an agent reports and what a user asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chalicelib.domain.fleets import FleetStatus
from chalicelib.domain.instances import InstanceStatus, OnPrem
from chalicelib.domain.instants import HOUR
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.reasons import JobReason, RunReason
from chalicelib.domain.reports import TaskReport
from chalicelib.domain.runs import RunStatus
from chalicelib.machines.job import TO_UNMOUNT
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.requests import (
    delete_fleet,
    delete_run,
    delete_volume,
    end_instance,
    forget_host,
    stop_run,
)
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.machines.joining import host_left, join_host
from chalicelib.planning.runs.agent_reports import ReportFold
from tests.planning.situations.kit import BEFORE, NOW, Decided, placed, situation
from tests.planning.situations.runs import LEAVING
from tests.world import nouns as b
from tests.world.disks import volume


def report(status: str, state_report: dict[str, Any] | None, stored: int = 0, **fields: Any) -> Decided:
    at = b.machine(0)
    one = placed(at, b.job(b.run())).with_(status=JobStatus(status), **fields)
    at = b.holding(at, one)
    fold = ReportFold(Draft(NOW), at)
    fold.report(
        one, None if state_report is None else TaskReport.model_validate({"id": one.id, **state_report}), stored
    )
    return NounsSnapshot(NOW, (one, at)), fold.draft.plan()


EXIT = {"state": "exited", "exit_status": 3, "reason": "container_exited_with_error", "log_end": 9}
PULL = {"downloaded_bytes": 5}
situation("a task that isn't known yet", report, "provisioning", None, comes_to="nothing")
situation(
    "a task that is lost",
    report,
    "running",
    None,
    5,
    comes_to="train-0-0 running → failed (executor_error); cloud-0 busy → idle",
)
situation("a task that is lost after its job's end", report, "terminated", None, comes_to="nothing")
situation(
    "a task that pulls",
    report,
    "provisioning",
    {"state": "pulling", "pull": PULL},
    comes_to="train-0-0 provisioning → pulling",
)
situation("a task that pulls on", report, "pulling", {"state": "pulling", "pull": PULL}, comes_to="train-0-0: pull")
situation("a task that pulls after it ran", report, "running", {"state": "pulling", "pull": PULL}, comes_to="nothing")
situation(
    "a task that runs",
    report,
    "pulling",
    {"state": "running", "username": "root", "working_dir": "/w", "message": "m" * 1200, "pull": PULL},
    comes_to="train-0-0 pulling → running",
)
situation("a task that ran and ended between two reports", report, "provisioning", {**EXIT, "message": "m" * 1200}, 9)
situation(
    "a task that ended before it ran",
    report,
    "provisioning",
    {**EXIT, "exit_status": None, "reason": "executor_error"},
    9,
    comes_to="train-0-0 provisioning → failed (executor_error); cloud-0 busy → idle",
)
HELD = {**EXIT, "held": ["v"]}
situation(
    "a task whose disk is held for a moment",
    report,
    "terminating",
    HELD,
    9,
    **{**LEAVING, "stop_sent_at": NOW - TO_UNMOUNT + 1},
    kill_at=NOW - TO_UNMOUNT + 1,
    comes_to="train-0-0: exit_status, held",
)
situation(
    "a task whose disk is held by somebody",
    report,
    "terminating",
    {**HELD, "held_by": "sh (7)"},
    9,
    **LEAVING,
    comes_to="train-0-0: exit_status, held, kill_at; cloud-0 busy → terminating (error)",
)
situation(
    "a task that ended over its quota",
    report,
    "terminating",
    EXIT,
    2,
    exit_status=3,
    reason=JobReason.log_quota_exceeded,
    comes_to="train-0-0 terminating → failed (log_quota_exceeded); cloud-0 busy → idle",
)


def request(decide: Callable[..., Plan], *args: Any) -> Decided:
    return NounsSnapshot(NOW, args[:1]), decide(*args, Draft(NOW, ("u", "ann")))


def a_run(status: str = "running", **fields: Any) -> Any:
    return b.run(status=RunStatus(status), submitted_at=BEFORE, last_processed_at=BEFORE, **fields)


STOP, ABORT = RunReason.stopped_by_user, RunReason.aborted_by_user
situation("a user aborts a run that stops", request, stop_run, a_run("terminating", reason=STOP), ABORT)
situation(
    "a user aborts a run that has failed",
    request,
    stop_run,
    a_run("terminating", reason=RunReason.job_failed),
    ABORT,
    comes_to="nothing",
)
situation("a user deletes a run", request, delete_run, a_run("done", due_at=NOW), comes_to="train: deleted, deleted_at")
situation("a user deletes a run twice", request, delete_run, a_run("done", deleted=True), comes_to="nothing")
situation("a user deletes a fleet", request, delete_fleet, b.fleet(to_create=2))
situation(
    "a user deletes a fleet twice", request, delete_fleet, b.fleet(status=FleetStatus.terminating), comes_to="nothing"
)
situation("a user ends an instance", request, end_instance, b.machine(0, stop_attempts=3))
situation(
    "a user ends an instance twice",
    request,
    end_instance,
    b.machine(0, status=InstanceStatus.terminating),
    comes_to="nothing",
)

situation("a user deletes a volume", request, delete_volume, volume(deadline=NOW + HOUR, asked=3))
HOST: dict[str, Any] = {"host": OnPrem(hostname="h1", port=22), "status": InstanceStatus.terminating}
situation("a user forgets a host", request, forget_host, b.host(0, **HOST), comes_to="local-0: forgotten")
situation(
    "a user forgets a machine",
    request,
    forget_host,
    b.machine(0, status=InstanceStatus.terminating),
    comes_to="nothing",
)

JOINED: dict[str, Any] = {"host": OnPrem(hostname="h1", port=0, joined=True)}
ENDS = InstanceStatus.terminating
situation(
    "a host joins",
    lambda: request(lambda fleet, draft: join_host(b.view(fleet), "h1", draft)[1], b.fleet()),
    comes_to="local: next_instance_num; new instance local-0 pending",
)
situation(
    "a host has left",
    request,
    host_left,
    b.host(0, **JOINED),
    comes_to="local-0 idle → terminating (terminated_by_user)",
)
situation(
    "a host has left as it was asked to", request, host_left, b.host(0, status=ENDS, **JOINED), comes_to="local-0: left"
)
situation(
    "a host has left that is gone",
    request,
    host_left,
    b.host(0, status=InstanceStatus.terminated, **JOINED),
    comes_to="nothing",
)
situation(
    "a host that was added can't leave",
    request,
    host_left,
    b.host(0, host=OnPrem(hostname="h1", port=22)),
    comes_to="nothing",
)
