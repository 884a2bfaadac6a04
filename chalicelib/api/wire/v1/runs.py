"""Runs, their jobs and plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import orjson

from chalicelib.api.wire.runs import job_message, run_message
from chalicelib.billing.usage import run_cost
from chalicelib.domain.instants import Micros, iso
from chalicelib.domain.jobs import Assignment, Job
from chalicelib.domain.specs.env import without_values
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.engine.read import RunRow
from chalicelib.store.logs import Piece
from chalicelib.store.sealed_specs import shown
from chalicelib.usecases.runs.plans import JobPlan, RunPlan

if TYPE_CHECKING:
    from chalicelib import contract


def run_path(project_name: str, name: str) -> str:
    return f"/api/v1/projects/{project_name}/runs/{name}"


def run_summary_json(row: RunRow, project_name: str, now: Micros) -> contract.V1RunSummary:
    run = row.run
    service = run.url or f"/proxy/services/{project_name}/{run.name}/"
    return {
        "id": run.id,
        "name": run.name,
        "project": project_name,
        "user": run.user_name,
        "url": run_path(project_name, run.name),
        "status": run.status.value,
        "reason": None if run.reason is None else run.reason.value,
        "why": run_message(run, [history[-1] for history in row.histories()]) or None,
        "priority": run.priority,
        "fleet": run.fleet_name,
        "revision": run.deployment_num,
        "changed_by": run.changed_by or None,
        "stopped_by": None if run.ended_by is None else run.ended_by[1],
        "submitted_at": iso(run.submitted_at),
        "finished_at": _date(run.finished_at),
        "next_start_at": _date(run.next_start),
        "cost_usd": round(run_cost(run, row.jobs, now), 4),
        "service_url": service if run.scales else None,
    }


def run_json(row: RunRow, project_name: str, now: Micros, *, env: bool) -> contract.V1Run:
    """A run with its spec and jobs. Without `env` the environment variables have no values."""
    return {
        **run_summary_json(row, project_name, now),
        "spec": _configuration(shown(RunSpec, row.run_spec), env=env),
        "jobs": [_job_json(history[-1]) for history in row.histories()],
    }


def _configuration(spec: str | bytes, *, env: bool) -> contract.Configuration:
    """What the user wrote, of a spec without secrets."""
    written: contract.Configuration = orjson.loads(spec)["configuration"]
    if not env and "env" in written:
        written = {**written, "env": without_values(written["env"])}
    return written


def _job_json(job: Job) -> contract.V1Job:
    return {
        "id": job.id,
        "name": job.name,
        "replica": job.replica_num,
        "node": job.job_num,
        "attempt": job.submission_num,
        "status": job.status.value,
        "reason": None if job.reason is None else job.reason.value,
        "why": job_message(job),
        "exit_status": job.exit_status,
        "submitted_at": iso(job.submitted_at),
        "finished_at": _date(job.finished_at),
        "instance": None if job.assignment is None else _instance_json(job.assignment),
    }


def _instance_json(where: Assignment) -> contract.V1Instance:
    offer = where.offer
    return {
        "id": where.instance_id,
        "name": where.instance_name,
        "fleet": where.fleet_name,
        "backend": offer.backend,
        "region": offer.region,
        "type": offer.instance.name,
        "spot": offer.instance.resources.spot,
        "price_per_hour_usd": offer.price,
    }


def plan_json(plan: RunPlan) -> contract.V1RunPlan:
    spec = orjson.loads(plan.effective_spec)
    notes = [f"{note.subject} {note.text}{f' ({note.hint})' if note.hint else ''}" for note in plan.notes]
    return {
        "action": "create",
        "name": spec["run_name"],
        "spec": spec["configuration"],
        "jobs": [_planned_json(job) for job in plan.jobs],
        "notes": [*notes, *plan.isolation, *plan.remarks, *plan.quota],
    }


def _planned_json(job: JobPlan) -> contract.V1PlannedJob:
    return {
        "count": job.jobs,
        "offers": job.total_offers,
        "cheapest_per_hour_usd": min((offer.price for offer in job.offers), default=None),
        "dearest_per_hour_usd": job.max_price,
    }


def log_page_json(job_id: str, records: Sequence[Piece], cursor: str | None) -> contract.V1LogPage:
    lines: list[contract.V1LogLine] = [{"at": iso(at), "text": data.decode(errors="replace")} for at, data in records]
    return {"job": job_id, "items": lines, "next": cursor}


def _date(at: Micros | None) -> str | None:
    return None if at is None else iso(at)
