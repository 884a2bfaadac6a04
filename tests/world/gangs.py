"""Clusters and tasks on several nodes, in a plane with passes over it."""

from __future__ import annotations

from typing import Any

from chalicelib.domain import keys
from chalicelib.domain.gangs import Gang
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import HOUR
from chalicelib.domain.jobs import Job
from chalicelib.domain.runs import Run, RunBody
from chalicelib.planning.jobs.jobs import by_group, job_specs
from chalicelib.store import nouns
from tests.world import nouns as b
from tests.world.engine import Engine

AT_ONCE = 30


def cluster(place: Engine, count: int, name: str = "cluster") -> list[Instance]:
    """A fleet with `placement: cluster` whose hosts have reported."""
    hosts = {"network": "10.0.0.0/16", "hosts": [f"h{n}" for n in range(count)]}
    fleet = place.fleet(name, placement="cluster", ssh_config=hosts)
    made = []
    for number in range(count):
        host = place.host(fleet, number)
        place.save(host.with_(internal_ip=f"10.0.{number // 200}.{number % 200 + 1}"))
        made.append(place.again(host))
    place.save(place.again(fleet).with_(next_instance_num=count))
    return made


def task(place: Engine, name: str, nodes: int = 1, *, priority: int = 0, written: int = AT_ONCE, **config: Any) -> Run:
    """A run as its user submitted it: as many of its jobs as a commit takes. Its pass adds the others."""
    given = {"resources": {"cpu": "1..", "memory": "1GB.."}, **config}
    spec = b.run_spec(run_name=name, **given, **({} if "groups" in config else {"nodes": nodes}))
    if "groups" in config:
        spec = b.run_spec(run_name=name, commands=[], **config)
    specs = job_specs(spec, images=b.Images())
    at = place.at
    run = b.run(name, priority=priority, submitted_at=at, last_processed_at=at, due_at=at)
    groups = by_group(specs)
    texts = tuple(group[0].model_dump_json() for group in groups)
    first = [b.job(run, node=number, due_at=at if number == 0 else None) for number in range(min(len(specs), written))]
    sizes = tuple(map(len, groups))
    body = RunBody(run_id=run.id, run_spec=spec.model_dump_json(), job_specs=texts, nodes=sizes)
    place.save(run, body, *first)
    return place.again(run)


def jobs_of(place: Engine, run: Run) -> list[Job]:
    """Of its newest submission, by rank."""
    _, jobs = place.plane.read.run_and_jobs(run.id)
    newest = max(job.submission_num for job in jobs)
    return [job for job in jobs if job.submission_num == newest]


def gang_of(place: Engine, run: Run, submission: int = 0) -> Gang | None:
    return nouns.find(place.store, Gang, keys.gang(run.id, 0, submission))


def holders(place: Engine, hosts: list[Instance]) -> dict[str, list[str]]:
    """By run: the machines on which it has a claim."""
    found: dict[str, list[str]] = {}
    for host in hosts:
        for claim in place.again(host).claims:
            found.setdefault(claim.run_id, []).append(host.name)
    return found


__all__ = ["HOUR"]
