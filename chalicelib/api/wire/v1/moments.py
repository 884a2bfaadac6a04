"""States of projects at an instant, and marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.domain.instants import Micros, iso
from chalicelib.domain.moments import InstanceThen, JobThen, RunThen, State
from chalicelib.usecases.operator.moments import Mark, Marks

if TYPE_CHECKING:
    from chalicelib import contract


def state_json(state: State, at: Micros, *, final: bool) -> contract.V1State:
    names = {fleet.id: fleet.name for fleet in state.fleets.values()}
    return {
        "at": iso(at),
        "final": final,
        "runs": [_run_json(run) for run in sorted(state.runs.values(), key=lambda run: (-run.submitted_at, run.id))],
        "fleets": [{"id": each.id, "name": each.name, "status": each.status} for each in state.fleets.values()],
        "instances": [_instance_json(each, names.get(each.fleet_id)) for each in state.instances.values()],
    }


def _run_json(run: RunThen) -> contract.V1RunThen:
    return {
        "id": run.id,
        "name": run.name,
        "user": run.user,
        "status": run.status,
        "reason": run.reason,
        "submitted_at": iso(run.submitted_at),
        "finished_at": None if run.finished_at is None else iso(run.finished_at),
        "price_per_hour_usd": round(sum(job.price for job in run.jobs.values()), 6),
        "jobs": [_job_json(job) for _, job in sorted(run.jobs.items())],
    }


def _job_json(job: JobThen) -> contract.V1JobThen:
    return {
        "name": job.name,
        "status": job.status,
        "reason": job.reason,
        "instance": job.instance or None,
        "price_per_hour_usd": job.price,
    }


def _instance_json(instance: InstanceThen, fleet: str | None) -> contract.V1InstanceThen:
    return {
        "id": instance.id,
        "name": instance.name,
        "fleet": fleet,
        "status": instance.status,
        "health": instance.health,
        "unreachable": instance.unreachable,
        "backend": instance.backend,
        "region": instance.region,
        "type": instance.type,
        "spot": instance.spot,
        "gpus": instance.gpus,
        "gpu": instance.gpu or None,
        "price_per_hour_usd": instance.price,
        "created_at": iso(instance.created_at),
    }


def marks_json(marks: Marks) -> contract.V1Marks:
    return {
        "items": [_mark_json(mark) for mark in marks.items],
        "next_until": None if marks.next_until is None else iso(marks.next_until),
    }


def _mark_json(mark: Mark) -> contract.V1Mark:
    target = mark.event.targets[0]
    return {
        "at": iso(mark.event.at),
        "kind": mark.kind,
        "target": {"type": target.type, "id": target.id, "name": target.name},
        "text": mark.event.message,
    }
