"""Metrics for Prometheus: runs with their costs and usage, waiting jobs, and the engine.

Metrics that the genuine server has keep their names and labels here, so that its dashboards work; ours are added to
them. Callers see the projects that they may see; admins also see the engine. Everything is computed for each request
from the existing records.

The counters of runs count listed runs: deleting runs resets them, which Prometheus allows for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from chalicelib.domain import keys
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.jobs import Assignment, Job
from chalicelib.domain.latencies import BOUNDS, below
from chalicelib.domain.objectives import OBJECTIVES
from chalicelib.domain.offers import Offer
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.services import ROUTER, Durations, Traffic
from chalicelib.domain.tenants import GlobalRole, Project, User
from chalicelib.engine.counters import Histogram
from chalicelib.engine.measures import EVENTS, MISSES
from chalicelib.engine.read import RunRow
from chalicelib.store.listing import all_of
from chalicelib.usecases.people.projects import visible
from chalicelib.usecases.ports import RecordPorts

if TYPE_CHECKING:
    from chalicelib.domain.leases import Epoch
    from chalicelib.engine.counters import Counters

MIB = 1024 * 1024
HEALTH = {"healthy": 0, "warning": 1, "failure": 2}
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
FAMILIES: dict[str, tuple[str, str]] = {  # name: type, what it is
    "dstack_instance_duration_seconds_total": (COUNTER, "Seconds since the instance was created"),
    "dstack_instance_price_dollars_per_hour": (GAUGE, "Price of the instance"),
    "dstack_instance_gpu_count": (GAUGE, "GPUs of the instance"),
    "dstack_instance_blocks": (GAUGE, "Parts of the instance that can be given to jobs"),
    "dstack_instance_busy_blocks": (GAUGE, "Parts of the instance that jobs have"),
    "dstack_instance_health": (GAUGE, "0 healthy, 1 warning, 2 failure"),
    "dstack_fleet_instances": (GAUGE, "Instances of the fleet by status"),
    "dstack_project_price_dollars_per_hour": (GAUGE, "Price of all instances of the project"),
    "dstack_run_count_total": (COUNTER, "Runs that were submitted"),
    "dstack_run_count_terminated_total": (COUNTER, "Runs that were terminated"),
    "dstack_run_count_failed_total": (COUNTER, "Runs that failed"),
    "dstack_run_count_done_total": (COUNTER, "Runs that are done"),
    "dstack_runs": (GAUGE, "Runs that haven't ended, by status"),
    "dstack_job_duration_seconds_total": (COUNTER, "Seconds since the job got its place"),
    "dstack_job_price_dollars_per_hour": (GAUGE, "Price of the job's place"),
    "dstack_job_gpu_count": (GAUGE, "GPUs that the job has"),
    "dstack_job_cpu_count": (GAUGE, "CPUs that the job has"),
    "dstack_job_cpu_time_seconds_total": (COUNTER, "CPU time that the job has used"),
    "dstack_job_memory_total_bytes": (GAUGE, "Memory that the job has"),
    "dstack_job_memory_usage_bytes": (GAUGE, "Memory that the job uses, with caches"),
    "dstack_job_memory_working_set_bytes": (GAUGE, "Memory that the job uses, without caches"),
    "dstack_job_gpu_usage_ratio": (GAUGE, "How busy a GPU of the job is, from 0 to 1"),
    "dstack_job_gpu_memory_usage_bytes": (GAUGE, "Memory of a GPU of the job that is used"),
    "dstack_job_gpu_memory_total_bytes": (GAUGE, "Memory of a GPU of the job"),
    "dstack_service_prompt_tokens_total": (COUNTER, "Tokens that the service's model has read, by its own count"),
    "dstack_service_completion_tokens_total": (COUNTER, "Tokens that the service's model has written"),
    "dstack_service_first_byte_seconds": (HISTOGRAM, "Seconds until the first byte of an answer's body, by door"),
    "dstack_service_request_duration_seconds": (HISTOGRAM, "Seconds until a request was answered to its end, by door"),
    "dstack_queue_jobs": (GAUGE, "Jobs waiting for capacity"),
    "dstack_queue_age_seconds": (GAUGE, "How long the job that has waited longest has waited"),
    "dstack_engine_passes_total": (COUNTER, "Passes of the reconciler since the server's start"),
    "dstack_engine_units_total": (COUNTER, "Units that passes processed"),
    "dstack_engine_conflicts_total": (COUNTER, "Steps that met another's change, and were decided again"),
    "dstack_engine_units_failed_total": (COUNTER, "Units that a pass failed to process, and that are retried"),
    "dstack_engine_effects_total": (COUNTER, "Calls to clouds and hosts, by what came of them"),
    "dstack_ready": (GAUGE, "1 if this check of the server's readiness passes, else 0"),
    "dstack_pair_epoch": (GAUGE, "Of a server of a pair, which decides: how often its lease has changed hands"),
    "dstack_request_duration_seconds": (HISTOGRAM, "Seconds until requests were answered, by class and status"),
    "dstack_job_decision_seconds": (HISTOGRAM, "Seconds from a job's submission to its place, or to why it waits"),
    "dstack_job_start_seconds": (HISTOGRAM, "Seconds until a job was begun by its machine, which was up"),
    "dstack_objective_events_total": (COUNTER, "Events that an objective is about"),
    "dstack_objective_misses_total": (COUNTER, "Those of them that didn't go as the objective says"),
    "dstack_objective_target_ratio": (GAUGE, "The share of events that must go well"),
}
_ENDS = {
    RunStatus.terminated: "dstack_run_count_terminated_total",
    RunStatus.failed: "dstack_run_count_failed_total",
    RunStatus.done: "dstack_run_count_done_total",
}
Labels = Mapping[str, str]


class MetricPorts(RecordPorts, Protocol):
    """The ports for metrics."""

    @property
    def counters(self) -> Counters | None: ...

    @property
    def problems(self) -> Callable[[], Mapping[str, str]]: ...

    @property
    def epoch(self) -> Epoch | None: ...


@dataclass
class Exposition:
    """Samples by family, in the order of `FAMILIES`."""

    now: Micros
    samples: dict[str, list[tuple[Labels, float]]] = field(default_factory=lambda: {name: [] for name in FAMILIES})
    histograms: dict[str, list[tuple[Labels, Histogram]]] = field(default_factory=dict)

    def add(self, name: str, value: float, **labels: str) -> None:
        self.samples[name].append(({f"dstack_{label}": text for label, text in labels.items()}, value))

    def spread(self, name: str, durations: Durations, **labels: str) -> None:
        """Add a histogram of a door; none if it has counted nothing."""
        number = sum(durations.histogram)
        if number:
            histogram = Histogram(below(durations.histogram), number, durations.seconds, BOUNDS)
            named = {f"dstack_{label}": text for label, text in labels.items()}
            self.histograms.setdefault(name, []).append((named, histogram))

    def seconds(self, since: Micros) -> float:
        return max(0, self.now - since) / SECOND


def expose(plane: MetricPorts, user: User) -> Exposition:
    exposition = Exposition(plane.clock.now())
    everything = user.role is GlobalRole.admin
    for project in visible(plane.store, user, not_joined=everything):
        _instances(plane, exposition, project)
        _runs(plane, exposition, project)
        _queue(plane, exposition, project)
    if everything and plane.counters is not None:
        _server(plane, exposition, plane.counters)
    return exposition


def _server(plane: MetricPorts, exposition: Exposition, counters: Counters) -> None:
    for (name, labels), number in sorted(counters.counts().items()):
        family = f"dstack_{name}_total" if name in (EVENTS, MISSES) else f"dstack_engine_{name}_total"
        exposition.samples[family].append((dict(labels), number))
    for (name, labels), histogram in sorted(counters.histograms().items()):
        exposition.histograms.setdefault(f"dstack_{name}", []).append((dict(labels), histogram))
    for check, why in plane.problems().items():
        exposition.samples["dstack_ready"].append(({"check": check}, 0 if why else 1))
    if plane.epoch is not None:
        exposition.samples["dstack_pair_epoch"].append(({}, plane.epoch.number))
    for objective in OBJECTIVES.values():
        exposition.samples["dstack_objective_target_ratio"].append(({"objective": objective.name}, objective.target))


def _instances(plane: RecordPorts, exposition: Exposition, project: Project) -> None:
    price = 0.0
    for fleet in plane.read.fleets(project.id):
        instances = plane.read.instances(fleet.id)
        for status, number in sorted(Counter(instance.status.value for instance in instances).items()):
            named = {"project_name": project.name, "fleet_name": fleet.name, "fleet_id": fleet.id}
            exposition.add("dstack_fleet_instances", number, **named, status=status)
        for instance in instances:
            _instance(exposition, instance, project)
            price += instance.offer.price
    for gateway in plane.read.gateways(project.id):
        for instance in plane.read.instances(gateway.id):
            _instance(exposition, instance, project)
            price += instance.offer.price
    exposition.add("dstack_project_price_dollars_per_hour", round(price, 6), project_name=project.name)


def _instance(exposition: Exposition, instance: Instance, project: Project) -> None:
    labels = {
        "project_name": project.name,
        "fleet_name": instance.fleet_name,
        "fleet_id": instance.fleet_id,
        "instance_name": instance.name,
        "instance_id": instance.id,
        "instance_type": instance.offer.instance.name,
        "backend": instance.offer.backend,
        "gpu": _gpu(instance.offer),
    }
    values = {
        "duration_seconds_total": exposition.seconds(instance.created_at),
        "price_dollars_per_hour": instance.offer.price,
        "gpu_count": len(instance.offer.instance.resources.gpus),
        "blocks": instance.total_blocks,
        "busy_blocks": instance.total_blocks - instance.free_blocks,
        "health": HEALTH[instance.health],
    }
    for name, value in values.items():
        exposition.add(f"dstack_instance_{name}", value, **labels)


def _gpu(offer: Offer) -> str:
    gpus = offer.instance.resources.gpus
    return gpus[0].name if gpus else ""


def _runs(plane: RecordPorts, exposition: Exposition, project: Project) -> None:
    counted: Counter[tuple[str, str]] = Counter()  # name of the family, name of the user
    live: Counter[str] = Counter()
    for run in _listed(plane, project):
        counted["dstack_run_count_total", run.user_name] += 1
        if run.status in _ENDS:
            counted[_ENDS[run.status], run.user_name] += 1
        else:
            live[run.status.value] += 1
            row = plane.read.run_row(run)
            configuration = orjson.loads(row.run_spec)["configuration"]
            _jobs(plane, exposition, project, row, str(configuration["type"]))
            if configuration["type"] == "service":
                model = configuration.get("model") or ""
                _traffic(plane, exposition, project, run, model if isinstance(model, str) else str(model["name"]))
    users = sorted({user for _, user in counted})
    for name in ("dstack_run_count_total", *_ENDS.values()):
        for user in users:
            exposition.add(name, counted[name, user], project_name=project.name, user_name=user)
    for status, number in sorted(live.items()):
        exposition.add("dstack_runs", number, project_name=project.name, status=status)


def _listed(plane: RecordPorts, project: Project) -> Iterator[Run]:
    for record in all_of(plane.store, "gsi1", keys.runs_of(project.id)):
        yield plane.read.parse(Run, record)


def _traffic(plane: RecordPorts, exposition: Exposition, project: Project, run: Run, model: str) -> None:
    for record in all_of(plane.store, "main", keys.traffic(run.id, "").pk):
        seen = plane.read.parse(Traffic, record)
        named = {"project_name": project.name, "run_name": run.name, "run_id": run.id, "door": seen.door}
        if model:
            exposition.add("dstack_service_prompt_tokens_total", seen.prompt_tokens, **named, model=model)
            exposition.add("dstack_service_completion_tokens_total", seen.completion_tokens, **named, model=model)
        if not seen.door.startswith(ROUTER):
            exposition.spread("dstack_service_first_byte_seconds", seen.first_byte, **named)
            exposition.spread("dstack_service_request_duration_seconds", seen.whole, **named)


def _jobs(plane: RecordPorts, exposition: Exposition, project: Project, row: RunRow, kind: str) -> None:
    for job in row.jobs:
        if not job.finished and job.assignment is not None:
            _job(exposition, project, row.run, job, job.assignment, kind, _newest_point(plane, job))


def _newest_point(plane: RecordPorts, job: Job) -> dict[str, Any] | None:
    page = plane.store.query("main", keys.metric(job.id, 0).pk, limit=1, reverse=True)
    return orjson.loads(page.records[0].body) if page.records else None


def _job(
    exposition: Exposition,
    project: Project,
    run: Run,
    job: Job,
    place: Assignment,
    kind: str,
    point: dict[str, Any] | None,
) -> None:
    has = place.offer.instance.resources
    labels = {
        "project_name": project.name,
        "user_name": run.user_name,
        "run_name": run.name,
        "run_id": run.id,
        "job_name": job.name,
        "job_id": job.id,
        "job_num": str(job.job_num),
        "replica_num": str(job.replica_num),
        "run_type": kind,
        "backend": place.offer.backend,
        "gpu": _gpu(place.offer),
    }
    values: dict[str, float] = {
        "duration_seconds_total": exposition.seconds(place.assigned_at),
        "price_dollars_per_hour": place.offer.price,
        "gpu_count": len(has.gpus),
        "cpu_count": has.cpus,
        "memory_total_bytes": has.memory_mib * MIB,
    }
    if point is not None:
        values |= {
            "cpu_time_seconds_total": point["cpu_usage_micro"] / SECOND,
            "memory_usage_bytes": point["memory_usage_bytes"],
            "memory_working_set_bytes": point["memory_working_set_bytes"],
        }
    for name, value in values.items():
        exposition.add(f"dstack_job_{name}", value, **labels)
    for number, used in enumerate((point or {}).get("gpus") or ()):
        one = {**labels, "gpu_num": str(number)}
        if used.get("util_percent") is not None:
            exposition.add("dstack_job_gpu_usage_ratio", used["util_percent"] / 100, **one)
        if used.get("memory_usage_bytes") is not None:
            exposition.add("dstack_job_gpu_memory_usage_bytes", used["memory_usage_bytes"], **one)
        if number < len(has.gpus):
            exposition.add("dstack_job_gpu_memory_total_bytes", has.gpus[number].memory_mib * MIB, **one)


def _queue(plane: RecordPorts, exposition: Exposition, project: Project) -> None:
    waiting = [plane.read.parse(Job, each) for each in all_of(plane.store, "gsi1", keys.queue_of(project.id))]
    oldest = min((job.submitted_at for job in waiting), default=exposition.now)
    exposition.add("dstack_queue_jobs", len(waiting), project_name=project.name)
    exposition.add("dstack_queue_age_seconds", exposition.seconds(oldest), project_name=project.name)
