"""What an agent reports and what a user asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chalicelib.domain.fleets import FleetStatus
from chalicelib.domain.gateways import Gateway, GatewayStatus
from chalicelib.domain.instances import InstanceStatus, OnPrem
from chalicelib.domain.instants import HOUR
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.reasons import JobReason, RunReason
from chalicelib.domain.reports import TaskReport
from chalicelib.domain.runs import RunStatus
from chalicelib.domain.volumes import VolumeStatus
from chalicelib.machines.job import TO_UNMOUNT
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.requests import (
    delete_fleet,
    delete_gateway,
    delete_run,
    delete_volume,
    end_instance,
    forget_host,
    stop_run,
)
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.machines.joining import host_left, join_host
from chalicelib.planning.runs.agent_reports import Fold
from tests.planning.situations.kit import BEFORE, NOW, Decided, placed, situation
from tests.planning.situations.runs import LEAVING
from tests.world import nouns as b
from tests.world.disks import volume
from tests.world.gateways import gateway


def report(status: str, said: dict[str, Any] | None, stored: int = 0, **fields: Any) -> Decided:
    at = b.machine(0)
    one = placed(at, b.job(b.run())).with_(status=JobStatus(status), **fields)
    at = b.holding(at, one)
    fold = Fold(Draft(NOW), at)
    fold.report(one, None if said is None else TaskReport.model_validate({"id": one.id, **said}), stored)
    return NounsSnapshot(NOW, (one, at)), fold.draft.plan()


EXIT = {"state": "exited", "exit_status": 3, "reason": "container_exited_with_error", "log_end": 9}
PULL = {"downloaded_bytes": 5}
situation("a task that isn't known yet", report, "provisioning", None)
situation("a task that is lost", report, "running", None, 5)
situation("a task that is lost while it pulls", report, "pulling", None)
situation("a task that is lost after its job's end", report, "terminated", None)
situation("a task that pulls", report, "provisioning", {"state": "pulling", "pull": PULL})
situation("a task that pulls on", report, "pulling", {"state": "pulling", "pull": PULL})
situation("a task that pulls after it ran", report, "running", {"state": "pulling", "pull": PULL})
situation(
    "a task that runs",
    report,
    "pulling",
    {"state": "running", "username": "root", "working_dir": "/w", "message": "m" * 1200, "pull": PULL},
)
situation(
    "a task that runs on", report, "running", {"state": "running", "message": ""}, message="old", disconnected_at=BEFORE
)
situation(
    "a task that runs on though its job ends",
    report,
    "terminating",
    {"state": "running", "message": "new"},
    message="old",
    **LEAVING,
)
situation("a task that ran and ended between two reports", report, "provisioning", {**EXIT, "message": "m" * 1200}, 9)
situation(
    "a task that ended before it ran",
    report,
    "provisioning",
    {**EXIT, "exit_status": None, "reason": "executor_error"},
    9,
)
situation("a task that ended and whose log isn't here yet", report, "running", EXIT, 8)
situation("a task that ended as its job was asked to", report, "terminating", EXIT, 9, **LEAVING)
HELD = {**EXIT, "held": ["v"]}
for name, at in (("a moment", NOW - TO_UNMOUNT + 1), ("too long", NOW - TO_UNMOUNT)):
    told = {**LEAVING, "stop_sent_at": at}
    situation(f"a task whose disk is held for {name}", report, "terminating", HELD, 9, **told, kill_at=at)
    situation(
        f"a task with all the time it likes, whose disk is held for {name}", report, "terminating", HELD, 9, **told
    )
situation("a task whose disk is held by somebody", report, "terminating", {**HELD, "held_by": "sh (7)"}, 9, **LEAVING)
situation("a task whose disk is held no more", report, "terminating", EXIT, 9, held="sh (7)", **LEAVING)
situation(
    "a task that ended over its quota",
    report,
    "terminating",
    EXIT,
    2,
    exit_status=3,
    reason=JobReason.log_quota_exceeded,
)


def request(ask: Callable[..., Plan], *args: Any) -> Decided:
    return NounsSnapshot(NOW, args[:1]), ask(*args, Draft(NOW, ("u", "ann")))


def closed(gateway: Gateway) -> Decided:
    """With its project."""
    return NounsSnapshot(NOW, (gateway,)), delete_gateway(gateway, Draft(NOW), "its project is closed")


def a_run(status: str = "running", **fields: Any) -> Any:
    return b.run(status=RunStatus(status), submitted_at=BEFORE, last_processed_at=BEFORE, **fields)


STOP, ABORT = RunReason.stopped_by_user, RunReason.aborted_by_user
situation("a user stops a run", request, stop_run, a_run(), STOP)
situation("a user stops a run twice", request, stop_run, a_run("terminating", reason=STOP), STOP)
situation("a user aborts a run that stops", request, stop_run, a_run("terminating", reason=STOP), ABORT)
situation(
    "a user aborts a run that has failed", request, stop_run, a_run("terminating", reason=RunReason.job_failed), ABORT
)
situation("a user stops a run that is over", request, stop_run, a_run("done"), STOP)
situation("a user deletes a run", request, delete_run, a_run("done", due_at=NOW))
situation("a user deletes a run that isn't over", request, delete_run, a_run())
situation("a user deletes a run twice", request, delete_run, a_run("done", deleted=True))
situation("a user deletes a fleet", request, delete_fleet, b.fleet(to_create=2))
situation("a user deletes a fleet twice", request, delete_fleet, b.fleet(status=FleetStatus.terminating))
situation("a user ends an instance", request, end_instance, b.machine(0, stop_attempts=3))
situation("a user ends an instance twice", request, end_instance, b.machine(0, status=InstanceStatus.terminating))

LEFT_BEHIND: dict[str, Any] = {"message": "it can't be made", "due_at": NOW + HOUR}
for name, deleted in (("", GatewayStatus.running), (" twice", GatewayStatus.deleting)):
    situation(f"a user deletes a gateway{name}", request, delete_gateway, gateway(status=deleted, **LEFT_BEHIND))
situation("a gateway is deleted with its project", closed, gateway(**LEFT_BEHIND))
situation("a user deletes a volume", request, delete_volume, volume(deadline=NOW + HOUR, asked=3))
situation("a user deletes a volume twice", request, delete_volume, volume(status=VolumeStatus.deleting))
HOST: dict[str, Any] = {"host": OnPrem(hostname="h1", port=22), "status": InstanceStatus.terminating}
situation("a user forgets a host", request, forget_host, b.host(0, **HOST))
situation("a user forgets a host twice", request, forget_host, b.host(0, forgotten=True, **HOST))
situation("a user forgets a host that doesn't leave", request, forget_host, b.host(0, **{**HOST, "status": "idle"}))
situation("a user forgets a machine", request, forget_host, b.machine(0, status=InstanceStatus.terminating))

JOINED: dict[str, Any] = {"host": OnPrem(hostname="h1", port=0, joined=True)}
HOLDS = b.holding(b.host(0, **JOINED), b.job(b.run()))
ENDS = InstanceStatus.terminating
situation("a host joins", lambda: request(lambda fleet, draft: join_host(b.view(fleet), "h1", draft)[1], b.fleet()))
situation("a host has left", request, host_left, b.host(0, **JOINED))
situation("a host has left with a job", request, host_left, HOLDS)
situation("a host has left as it was asked to", request, host_left, b.host(0, status=ENDS, **JOINED))
situation("a host says twice that it has left", request, host_left, b.host(0, status=ENDS, left=True, **JOINED))
situation("a host has left that is gone", request, host_left, b.host(0, status=InstanceStatus.terminated, **JOINED))
situation("a host that was added can't leave", request, host_left, b.host(0, host=OnPrem(hostname="h1", port=22)))
