"""Services."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.api.wire.runs import job_message
from chalicelib.api.wire.services import service_json as addresses_of
from chalicelib.domain.instants import Micros, iso
from chalicelib.domain.jobs import Job
from chalicelib.domain.latencies import Histogram, percentile
from chalicelib.domain.specs.services import ScalingSpec
from chalicelib.errors import Bug
from chalicelib.planning.runs.scaling import WINDOW
from chalicelib.usecases.services.live_services import LiveGroup, LiveService

if TYPE_CHECKING:
    from chalicelib import contract


def service_json(service: LiveService, project_name: str, now: Micros) -> contract.V1Service:
    run = service.row.run
    addresses = addresses_of(run, service.row.run_spec, project_name)
    if addresses is None:
        raise Bug(f"run {run.name} is a service without replicas to count")
    model = addresses["model"]
    return {
        "run": run.name,
        "url": addresses["url"],
        "auth": service.config.auth,
        "model": None if model is None else {"name": model["name"], "url": model["base_url"]},
        "revision": run.deployment_num,
        "groups": [_group_json(group) for group in service.groups],
        "replicas": [_replica_json(job) for job in service.replicas],
        "traffic": _traffic_json(service, now),
    }


def _group_json(group: LiveGroup) -> contract.V1ReplicaGroup:
    scale = group.scale
    return {
        "name": scale.group,
        "fewest": group.fewest,
        "most": group.most,
        "desired": scale.desired,
        "why": scale.why or None,
        "wanted": scale.wanted,
        "changed_at": _date(scale.at),
        "scaling": None if group.rule is None else _rule_json(group.rule),
    }


def _rule_json(rule: ScalingSpec) -> contract.V1ScalingRule:
    return {
        "metric": rule.metric,
        "target": rule.target,
        "window_seconds": rule.window or WINDOW,
        "scale_up_delay_seconds": rule.scale_up_delay,
        "scale_down_delay_seconds": rule.scale_down_delay,
    }


def _replica_json(job: Job) -> contract.V1Replica:
    return {
        "num": job.replica_num,
        "group": job.replica_group,
        "revision": job.deployment_num,
        "job": job.id,
        "status": job.status.value,
        "reason": None if job.reason is None else job.reason.value,
        "why": job_message(job),
        "ready_at": _date(job.ready_at),
        "draining_at": _date(job.draining_at),
        "waiting": job.queue,
        "submitted_at": iso(job.submitted_at),
    }


def _traffic_json(service: LiveService, now: Micros) -> contract.V1Traffic:
    doors, latest = service.traffic, service.last_minute(now)
    return {
        "held": service.held,
        "reported_at": _date(max((door.at for door in doors), default=None)),
        "items": [
            {"at": iso(each.at), "requests": each.requests, "busy": round(each.busy, 3)} for each in service.counts(now)
        ],
        "answers": [
            {"at": iso(each.at), "first_byte": _percentiles(each.first_byte), "whole": _percentiles(each.whole)}
            for each in service.answers(now)
        ],
        "first_byte": _percentiles(latest.first_byte),
        "whole": _percentiles(latest.whole),
        "prompt_tokens": sum(door.prompt_tokens for door in doors),
        "completion_tokens": sum(door.completion_tokens for door in doors),
    }


def _percentiles(histogram: Histogram) -> contract.V1Percentiles | None:
    p50, p95, p99 = (percentile(histogram, percent) for percent in (50, 95, 99))
    if p50 is None or p95 is None or p99 is None:
        return None
    return {"p50": round(p50, 4), "p95": round(p95, 4), "p99": round(p99, 4)}


def _date(at: Micros | None) -> str | None:
    return None if at is None else iso(at)
