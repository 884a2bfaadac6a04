"""Nouns as the decisions see them, short to write. Every builder takes what a test is about and fills in the rest."""

from __future__ import annotations

from typing import Any, TypeVar

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Claim, HostFacts, Instance, InstanceStatus, Presence, instance_id
from chalicelib.domain.instants import DAY, MINUTE, SECOND, Micros
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job
from chalicelib.domain.noun import Noun
from chalicelib.domain.offers import Availability, Disk, Gpu, InstanceType, Offer, Resources
from chalicelib.domain.runs import Run
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.engine.kinds import KINDS
from chalicelib.planning.jobs.jobs import job_specs
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.matching.requirements import JobRequirements, requirements_of
from chalicelib.planning.placing.plan_offers import with_sites
from chalicelib.planning.placing.snapshot import QueueSnapshot
from chalicelib.planning.volumes.sites import Volumes
from tests.world import time

NOW = time.NOW
PROJECT = derive("tests", "project")
FACTS = {"aws": BackendFacts(name="aws"), "runpod": BackendFacts(name="runpod")}

N = TypeVar("N", bound=Noun)


class Images:
    base, devel, python, docker = "base:{python}", "devel:{python}", "3.12", "dind"


lint = KINDS.rules.broken  # what is wrong with a plan, by the table's own rules


def _made(kind: type[N], **fields: Any) -> N:
    """A stored noun drops what it doesn't know; a test that names such a field is about nothing."""
    if unknown := fields.keys() - kind.model_fields.keys():
        raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    return kind(**fields)


def resources(
    cpus: int = 4, gb: float = 16, gpus: int = 0, gpu: str = "A100", gpu_gb: int = 80, **rest: Any
) -> Resources:
    cards = (Gpu(name=gpu, memory_mib=gpu_gb * 1024, vendor="nvidia"),) * gpus
    return Resources(cpus=cpus, memory_mib=int(gb * 1024), gpus=cards, **rest)


def offer(name: str = "m1", price: float = 1.0, *, backend: str = "aws", region: str = "eu", **rest: Any) -> Offer:
    has = rest.pop("has", None) or resources()
    rest.setdefault("availability", Availability.available)
    return Offer(backend=backend, instance=InstanceType(name=name, resources=has), region=region, price=price, **rest)


def run_spec(profile: dict[str, Any] | None = None, /, *, run_name: str = "train", **config: Any) -> RunSpec:
    config.setdefault("commands", ["true"])
    return RunSpec.model_validate(
        {"run_name": run_name, "configuration": {"type": "task", **config}, "profile": profile}
    )


def job_spec(spec: RunSpec) -> JobSpec:
    return job_specs(spec, images=Images())[0]


def requirements(spec: RunSpec, job: JobSpec | None = None, volumes: Volumes | None = None) -> JobRequirements:
    """What the first job of the run requires of a place."""
    job = job or job_spec(spec)
    found = requirements_of(spec, job)
    return found if volumes is None else with_sites(found, job, volumes)


def run(name: str = "train", **rest: Any) -> Run:
    rest = {
        "project_id": PROJECT,
        "user_id": "u",
        "user_name": "ann",
        "submitted_at": NOW,
        "last_processed_at": NOW,
        **rest,
    }
    return _made(Run, id=derive(name, "run"), name=name, **rest)


def job(of: Run, submission: int = 0, *, replica: int = 0, node: int = 0, **rest: Any) -> Job:
    return _made(
        Job,
        id=derive(of.id, "job", replica, node, submission),
        run_id=of.id,
        run_name=of.name,
        project_id=of.project_id,
        replica_num=replica,
        job_num=node,
        submission_num=submission,
        priority=of.priority,
        **{"submitted_at": of.submitted_at, "last_processed_at": of.submitted_at, "due_at": of.submitted_at, **rest},
    )


def queued(name: str = "train", spec: RunSpec | None = None, /, **rest: Any) -> QueuedJob:
    of = run(name, **{key: rest.pop(key) for key in ("priority", "submitted_at", "fleet_id") if key in rest})
    spec = spec or run_spec()
    return QueuedJob(job(of, **rest), of, job_spec(spec), spec)


def fleet(name: str = "local", **rest: Any) -> Fleet:
    return _made(
        Fleet,
        id=derive(name, "fleet"),
        project_id=PROJECT,
        name=name,
        **{"created_at": NOW, "last_processed_at": NOW, **rest},
    )


def fleet_spec(**config: Any) -> FleetSpec:
    profile = config.pop("profile", {})
    return FleetSpec.model_validate({"configuration": {"type": "fleet", **config}, "profile": profile})


def host_facts(cpus: int = 8, gb: float = 32, **rest: Any) -> HostFacts:
    """What an agent reports about its machine."""
    known = {"disk_mib": 200_000, "arch": "x86", "hostname": "host", "runtimes": ("process",)}
    known["isolation"] = {"process": "user"}
    return HostFacts(cpus=cpus, memory_mib=int(gb * 1024), **{**known, **rest})


def view(of: Fleet | None = None, *instances: Instance, **config: Any) -> FleetView:
    return FleetView(of or fleet(), fleet_spec(**config), instances)


def host(num: int = 0, of: Fleet | None = None, **rest: Any) -> Instance:
    """An idle host of a local fleet."""
    of = of or fleet()
    has = rest.pop("has", None) or resources(disk=Disk(size_mib=40_000))
    rest.setdefault("offer", offer("host", 0.0, backend="remote", region="", has=has))
    return _instance(num, of, **rest)


def machine(num: int = 0, of: Fleet | None = None, **rest: Any) -> Instance:
    """An idle machine that was bought."""
    rest.setdefault("offer", offer())
    return _instance(num, of or fleet("cloud"), **{"idle_seconds": 300, **rest})


def _instance(num: int, of: Fleet, **rest: Any) -> Instance:
    filled = {
        "status": InstanceStatus.idle,
        "created_at": NOW,
        "last_processed_at": NOW,
        "started_at": NOW,
        "idle_since": NOW,
        "due_at": None if rest.get("status") == InstanceStatus.terminated else NOW + DAY,
    }
    return _made(
        Instance,
        id=instance_id(of.id, num),
        project_id=of.project_id,
        fleet_id=of.id,
        fleet_name=of.name,
        num=num,
        name=f"{of.name}-{num}",
        **{**filled, **rest},
    )


def holding(instance: Instance, of: Job, *blocks: int) -> Instance:
    """The instance with this job's claim on it."""
    claim = Claim(
        job_id=of.id,
        run_id=of.run_id,
        replica_num=of.replica_num,
        job_num=of.job_num,
        submission_num=of.submission_num,
        blocks=blocks or tuple(range(instance.total_blocks)),
    )
    status = InstanceStatus.busy if instance.status == InstanceStatus.idle else instance.status
    return instance.with_(claims=(*instance.claims, claim), status=status, idle_since=None)


def presence_of(instance: Instance, *, last: Micros = NOW, promise: Micros = MINUTE, **rest: Any) -> Presence:
    return _made(
        Presence,
        instance_id=instance.id,
        project_id=instance.project_id,
        last_seen=last,
        seen_until=last + promise,
        **{"boot": "b", **rest},
    )


def waiting(
    *items: QueuedJob,
    fleets: tuple[FleetView, ...] = (),
    offers: tuple[Offer, ...] = (),
    now: Micros = NOW,
    awaited: tuple[str, ...] = (),
) -> QueueSnapshot:
    return QueueSnapshot(now, PROJECT, items, fleets, OfferBook(offers, now, awaited=awaited), FACTS)


__all__ = ["DAY", "MINUTE", "SECOND"]
