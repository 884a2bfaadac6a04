"""Runs, their jobs and run plans on the wire.

A spec is spliced in as its stored text. The latest submission appears twice in a response and is encoded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from chalicelib.api.wire.offers import ages_json, asked_json, instance_type_json, offer_json, offers_json
from chalicelib.api.wire.services import service_json
from chalicelib.api.wire.specs import job_spec_json, run_spec_json
from chalicelib.api.wire.spliced import spliced
from chalicelib.billing.usage import run_cost
from chalicelib.domain.editors import EDITORS, link_to
from chalicelib.domain.instants import Micros, iso
from chalicelib.domain.jobs import Assignment, Job, JobStatus, Login, PullProgress
from chalicelib.domain.reasons import JobReason, RunReason, short_text
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.engine.read import RunRow
from chalicelib.usecases.runs.plans import RunPlan

if TYPE_CHECKING:
    from chalicelib import contract

_SHOWN_AS_ERROR = (RunReason.retry_limit_exceeded, RunReason.server_error, RunReason.gateway_error)
MOST_OFFERS = 10_000  # of a plan
MOST_OF_NODES = 2_000  # of a plan for several nodes, in total: each node repeats the others'
SSH_PORT = "10022"  # of a job's own SSH server, as clients expect it
_WAITING = (RunStatus.submitted, RunStatus.pending)


def run_json(
    row: RunRow, project_name: str, now: Micros, *, jobs: bool = True, submissions: int | None = None, env: bool = True
) -> contract.Run:
    """A run. Without `jobs` its jobs are left out; `submissions` limits each job to that many of its latest. Without
    `env` the environment variables have no values."""
    run, histories = row.run, row.histories()
    latest = [history[-1] for history in histories]
    texts: dict[str, contract.Submission] = {job.id: spliced(orjson.dumps(submission_json(job))) for job in latest}
    last = max(latest, key=lambda job: (job.submitted_at, job.submission_num), default=None)
    listed = zip(row.job_specs, histories, strict=False) if jobs and submissions != 0 else ()
    ide = _ide(row) if any(job.status is JobStatus.running for job in latest) else None
    return {
        "id": run.id,
        "project_name": project_name,
        "user": run.user_name,
        "fleet": None if run.fleet_id is None else {"id": run.fleet_id, "name": run.fleet_name or ""},
        "submitted_at": iso(run.submitted_at),
        "last_processed_at": iso(run.last_processed_at),
        "status": run.status.value,
        "status_message": _status_message(run, latest),
        "termination_reason": None if run.reason is None else run.reason.value,
        "run_spec": run_spec_json(row.run_spec, env=env),
        "jobs": [_job_json(spec, history, texts, submissions, ide, env=env) for spec, history in listed],
        "latest_job_submission": None if last is None else texts[last.id],
        "cost": round(run_cost(run, row.jobs, now), 4),
        "service": service_json(run, row.run_spec, project_name),
        "deployment_num": run.deployment_num,
        "error": _run_error(run),
        "deleted": run.deleted,
        "next_triggered_at": None if run.next_start is None else iso(run.next_start),
        "message": run_message(run, latest),  # why it waits or ended, for clients that show it
        "changed_by": run.changed_by or None,  # as `user` applied it, for clients that show it too
        "stopped_by": None if run.ended_by is None else run.ended_by[1],
    }


def _status_message(run: Run, latest: list[Job]) -> str:
    if latest and not run.finished and all(job.status is JobStatus.pulling for job in latest):
        return "pulling"
    unplaced = all(job.reason in (None, JobReason.failed_to_start_due_to_no_capacity) for job in latest)
    if run.status in _WAITING and run.resubmission_attempt > 0 and unplaced:
        return "retrying"
    return run.status.value


def run_message(run: Run, latest: list[Job]) -> str:
    held = (job.held for job in latest if not job.finished)
    return "; ".join(filter(None, dict.fromkeys((run.message, *held))))


def _run_error(run: Run) -> str | None:
    if run.reason not in _SHOWN_AS_ERROR:
        return None
    return run.message or _text(run.reason)


def _job_json(
    spec: str,
    history: list[Job],
    latest: dict[str, contract.Submission],
    submissions: int | None,
    ide: str | None,
    *,
    env: bool,
) -> contract.Job:
    """A job with at least one submission: clients can't show a job without any."""
    shown = history if submissions is None else history[-submissions:]
    return {
        "job_spec": job_spec_json(spec, env=env),
        "job_submissions": [latest.get(job.id) or submission_json(job) for job in shown],
        "job_connection_info": _connection(history[-1], ide) if history[-1].status is JobStatus.running else None,
    }


def _ide(row: RunRow) -> str | None:
    found: str | None = orjson.loads(row.run_spec)["configuration"].get("ide")
    return found


def _connection(job: Job, ide: str | None) -> contract.ConnectionInfo:
    """How to connect to a job to which a client is attached, by its name in the SSH configuration."""
    host = job.run_name if job.slot == (0, 0) else job.name
    return {
        "ide_name": EDITORS[ide].name if ide else None,
        "attached_ide_url": link_to(ide, host, job.working_dir or "/") if ide else None,
        "proxied_ide_url": None,
        "attached_ssh_command": ["ssh", host],
        "proxied_ssh_command": None,
        "sshproxy_hostname": None,
        "sshproxy_port": None,
        "sshproxy_upstream_id": None,
    }


def submission_json(job: Job) -> contract.Submission:
    where = job.assignment
    return {
        "id": job.id,
        "submission_num": job.submission_num,
        "deployment_num": job.deployment_num,
        "submitted_at": iso(job.submitted_at),
        "last_processed_at": iso(job.last_processed_at),
        "finished_at": None if job.finished_at is None else iso(job.finished_at),
        "inactivity_secs": job.inactivity_secs,
        "status": job.status.value,
        "status_message": _job_status_message(job),
        "termination_reason": None if job.reason is None else job.reason.value,
        "termination_reason_message": job_message(job),
        "exit_status": job.exit_status,
        "job_provisioning_data": None if where is None else _provisioning(job, where),
        "job_runtime_data": None if where is None else _runtime(job, where),
        "error": _job_error(job),
        "probes": [{"success_streak": streak} for streak in job.probes],
        "login": None if job.login is None else _login(job.login),  # for `attach`, or why there is none
        "image_pull_progress": None if job.pull is None or job.status is not JobStatus.pulling else _pull(job.pull),
    }


def _login(login: Login) -> contract.Login:
    return {"port": login.port, "username": login.username, "host_key": login.host_key, "problem": login.problem}


def _pull(pull: PullProgress) -> contract.PullProgress:
    return {
        "downloaded_bytes": pull.downloaded_bytes,
        "extracted_bytes": pull.extracted_bytes,
        "total_bytes": pull.total_bytes,
        "is_total_bytes_final": pull.is_total_bytes_final,
    }


def _job_status_message(job: Job) -> str:
    short = short_text(job.reason, job.exit_status) if job.finished and job.reason is not None else ""
    return short or job.status.value


def job_message(job: Job) -> str | None:
    """A message about the job, also while it runs: of a silent host only the last report is known."""
    if job.finished:
        return job.message or None
    if job.reason is not None:
        return "; ".join(filter(None, (job.message, job.held))) or None
    silent = "" if job.disconnected_at is None else f"its host hasn't reported since {iso(job.disconnected_at)}"
    return "; ".join(filter(None, (silent, job.message, job.held, job.unjudged))) or None


def _job_error(job: Job) -> str | None:
    """The error that clients list: why the job failed or, as they have no other column for that, what it waits for."""
    if job.status is JobStatus.submitted:
        return job.message or None
    if job.held and not job.finished:
        return job.held
    plain = (None, JobReason.container_exited_with_error)
    return _text(job.reason) if job.status is JobStatus.failed and job.reason not in plain else None


def _text(reason: JobReason | RunReason | None) -> str:
    return "" if reason is None else reason.value.replace("_", " ")


def _provisioning(job: Job, where: Assignment) -> contract.ProvisioningData:
    """How to log in. A job's SSH server listens on its host's loopback. So clients log in to a host of an SSH fleet,
    through its jump host if it has one, and from there to the job (`dockerized`); on this machine they log in to the
    job directly."""
    offer, host, login = where.offer, where.host, job.login
    return {
        "backend": offer.backend,
        "base_backend": None,
        "instance_type": instance_type_json(offer.instance),
        "instance_id": where.instance_id,
        "hostname": (where.hostname or None) if host is None else host.hostname,
        "internal_ip": where.internal_ip or None,
        "public_ip_enabled": True,
        "instance_network": None,
        "region": offer.region,
        "availability_zone": where.zone or None,
        "reservation": offer.reservation or None,
        "price": offer.price,
        "username": host.user if host is not None else (login.username if login is not None else "") or "root",
        "ssh_port": host.port if host is not None else (login.port if login is not None else 0) or None,
        "dockerized": host is not None,
        "ssh_proxy": None
        if host is None or host.jump is None
        else {"hostname": host.jump.hostname, "username": host.jump.user, "port": host.jump.port},
        "backend_data": None,
        "gpu_driver": None,
    }


def _runtime(job: Job, where: Assignment) -> contract.RuntimeData:
    return {
        "network_mode": "host",
        "gpu": None,
        "cpu": None,
        "memory": None,
        "ports": {SSH_PORT: job.login.port} if job.login is not None and job.login.port else {},
        "volume_names": [each.name for each in where.volumes],
        "offer": offer_json(where.offer),
        "working_dir": job.working_dir,
        "username": (job.login.username if job.login is not None else "") or job.username,
    }


def run_plan_json(plan: RunPlan, project_name: str, user_name: str, now: Micros) -> contract.RunPlan:
    nodes = sum(len(job.job_specs) for job in plan.jobs)
    most = MOST_OFFERS if nodes == 1 else max(3, MOST_OF_NODES // nodes)
    offers: list[list[contract.Offer]] = [spliced(orjson.dumps(offers_json(job.offers[:most]))) for job in plan.jobs]
    return {
        "project_name": project_name,
        "user": user_name,
        "run_spec": spliced(plan.run_spec),
        "effective_run_spec": spliced(plan.effective_spec),
        "job_plans": [
            {
                "job_spec": spliced(job_spec),
                "offers": shown,
                "total_offers": job.total_offers,
                "max_price": job.max_price,
                "count": job.jobs
                if len(job.job_specs) == 1
                else 1,  # the number of jobs that start, for clients that show it
            }
            for job, shown in zip(plan.jobs, offers, strict=True)
            for job_spec in job.job_specs
        ],
        "current_resource": None if plan.current is None else run_json(plan.current, project_name, now),
        "action": plan.action,
        "replaces": list(plan.replaces),
        "notes": [
            {"subject": note.subject, "text": note.text, "hint": note.hint, "waits": note.waits} for note in plan.notes
        ],
        "delays": plan.delays,
        "isolation": list(plan.isolation),
        "remarks": list(plan.remarks),
        "quota": list(plan.quota),
        "offers_as_of": ages_json(plan.ages),
        "offers_asked": asked_json(plan.asked),
    }
