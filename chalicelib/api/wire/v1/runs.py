"""Runs, their jobs and plans."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from chalicelib.api.wire.runs import job_message, run_message
from chalicelib.api.wire.v1.machines import BEST, gpus_json, offer_json
from chalicelib.api.wire.v1.specs import configuration_of
from chalicelib.billing.usage import run_cost
from chalicelib.domain.instants import Micros, iso
from chalicelib.domain.jobs import Assignment, Job, JobStatus
from chalicelib.domain.runs import Run, RunBody
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.engine.read import RunRow
from chalicelib.store.logs import Piece
from chalicelib.usecases.runs.metrics import JobUsage
from chalicelib.usecases.runs.plans import JobPlan, RunPlan

if TYPE_CHECKING:
    from chalicelib import contract


def run_path(project_name: str, name: str) -> str:
    return f"/api/v1/projects/{project_name}/runs/{name}"


def run_summary_json(row: RunRow, project_name: str, now: Micros) -> contract.V1RunSummary:
    run, latest = row.run, [history[-1] for history in row.histories()]
    shown = latest if run.finished else [job for job in latest if not job.finished]
    placed = [job.assignment for job in shown if job.assignment is not None]
    configuration = orjson.loads(row.run_spec)["configuration"]
    service = run.url or f"/proxy/services/{project_name}/{run.name}/"
    return {
        "id": run.id,
        "name": run.name,
        "type": configuration["type"],
        "project": project_name,
        "user": run.user_name,
        "url": run_path(project_name, run.name),
        "status": run.status.value,
        "reason": None if run.reason is None else run.reason.value,
        "why": run_message(run, latest) or None,
        "priority": run.priority,
        "fleet": run.fleet_name,
        "revision": run.deployment_num,
        "changed_by": run.changed_by or None,
        "stopped_by": None if run.ended_by is None else run.ended_by[1],
        "submitted_at": iso(run.submitted_at),
        "finished_at": _date(run.finished_at),
        "next_start_at": _date(run.next_start),
        "asks_for": asked_gpus((configuration.get("resources") or {}).get("gpu")),
        "gpus": gpus_json([gpu for where in placed for gpu in where.offer.instance.resources.gpus]),
        "places": _places_json(placed),
        "jobs_count": len(shown),
        "replicas": _replicas_json(run, shown) if run.scales else None,
        "price_per_hour_usd": 0.0 if run.finished else round(sum(where.offer.price for where in placed), 6),
        "cost_usd": round(run_cost(run, row.jobs, now), 4),
        "service_url": service if run.scales else None,
    }


def asked_gpus(written: Any) -> str | None:
    """The GPUs of a configuration in the short form, in whatever form they were written."""
    if not isinstance(written, dict):
        return None if written in (None, 0, "0") else str(written)
    names = written.get("name") or ()
    parts = [names if isinstance(names, str) else ",".join(map(str, names))]
    parts += [_range(written.get(field)) for field in ("memory", "total_memory", "count")]
    text = ":".join(part for part in parts if part)
    return None if text in ("", "0", "0..", "0..0") else text


def _range(written: Any) -> str:
    if not isinstance(written, dict):
        return "" if written is None else str(written)
    low, high = (("" if written.get(end) is None else str(written[end])) for end in ("min", "max"))
    return low if low == high else f"{low}..{high}"


def _places_json(placed: Sequence[Assignment]) -> list[contract.V1RunPlace]:
    kinds = Counter(
        (each.backend, each.region, each.instance.name, each.instance.resources.spot)
        for each in (where.offer for where in placed)
    )
    return [
        {"backend": backend, "region": region, "type": name, "spot": spot, "jobs": jobs}
        for (backend, region, name, spot), jobs in kinds.most_common()
    ]


def _replicas_json(run: Run, jobs: Sequence[Job]) -> contract.V1Replicas:
    """A replica of several nodes counts once: its first node takes the requests."""
    first = [job for job in jobs if job.job_num == 0]
    return {
        "wanted": sum(scale.desired for scale in run.scales),
        "running": sum(job.status is JobStatus.running for job in first),
        "ready": sum(job.ready_at is not None and job.draining_at is None for job in first),
        "outdated": sum(job.deployment_num < run.deployment_num for job in first),
        "why": "; ".join(dict.fromkeys(scale.why for scale in run.scales if scale.why)) or None,
    }


def run_json(row: RunRow, project_name: str, now: Micros, *, env: bool) -> contract.V1Run:
    """A run with its spec and jobs. Without `env` the environment variables have no values."""
    return {
        **run_summary_json(row, project_name, now),
        "spec": run_spec_json(row, env=env),
        "jobs": [job_json(history[-1]) for history in row.histories()],
    }


def revision_json(run: Run, body: RunBody, jobs: Sequence[Job], *, env: bool) -> contract.V1Revision:
    of = [job for job in jobs if not job.finished and job.deployment_num == body.deployment_num]
    first = body.deployment_num == 0
    return {
        "run_id": run.id,
        "revision": body.deployment_num,
        "current": body.deployment_num == run.deployment_num,
        "applied_at": _date(body.applied_at or (run.submitted_at if first else None)),
        "applied_by": body.applied_by or (run.user_name if first else None),
        "jobs": len(of),
        "ready": sum(job.ready_at is not None and job.draining_at is None for job in of),
        "spec": configuration_of(RunSpec, body.run_spec, env=env),
    }


def run_spec_json(row: RunRow, *, env: bool) -> contract.Configuration:
    return configuration_of(RunSpec, row.run_spec, env=env)


def job_json(job: Job) -> contract.V1Job:
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
        "provisioned_at": _date(job.provisioned_at),
        "pulling_at": _date(job.pulling_at),
        "running_at": _date(job.running_at),
        "ready_at": _date(job.ready_at),
        "finished_at": _date(job.finished_at),
        "instance": None if job.assignment is None else _placement_json(job.assignment),
    }


def _placement_json(where: Assignment) -> contract.V1Placement:
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


def plan_json(plan: RunPlan, *, unchanged: bool = False) -> contract.V1RunPlan:
    spec = orjson.loads(plan.effective_spec)
    notes = [f"{note.subject} {note.text}{f' ({note.hint})' if note.hint else ''}" for note in plan.notes]
    return {
        "action": "none" if unchanged else "create" if plan.action == "create" else "change",
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
        "best": [offer_json(offer) for offer in job.offers[:BEST]],
    }


def log_lines_json(records: Sequence[Piece], *, newest_first: bool = False) -> list[contract.V1LogLine]:
    """A character that is in two pieces is in the text of the later one."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    lines: list[contract.V1LogLine] = []
    for number, (at, data) in enumerate(reversed(records) if newest_first else records, 1):
        lines.append({"at": iso(at), "text": decoder.decode(data, final=number == len(records))})
    return lines[::-1] if newest_first else lines


def metrics_json(usage: JobUsage) -> contract.V1Metrics:
    has = usage.has
    return {
        "cpus": None if has is None else has.cpus,
        "memory_total_bytes": None if has is None else has.memory_mib * 2**20,
        "gpus": None if has is None else len(has.gpus),
        "items": [
            {
                "at": iso(point.at),
                "cpu_percent": point.cpu_percent,
                "memory_bytes": point.memory_bytes,
                "working_set_bytes": point.working_set_bytes,
                "gpus": [{"memory_bytes": used, "percent": percent} for used, percent in point.gpus],
            }
            for point in usage.points
        ],
    }


def _date(at: Micros | None) -> str | None:
    return None if at is None else iso(at)
