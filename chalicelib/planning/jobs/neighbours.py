"""What a service's replica knows of the others when it starts: where they are.

A command may name a replica as `groups[i].replicas[j].IP_ADDRESS`: of group i, the j-th by number of those that are of
the same version, one that is always there. The workers of a Dynamo router find each other by what runs beside it, so
they get its address in a variable. A replica starts once all that it asks for have machines with an address;
none waits for another's start, so two may ask for each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job, JobStatus

Reference = tuple[int, int]  # a group's place, and which of its replicas

ROUTER_IP = "DSTACK_ROUTER_INTERNAL_IP"

_ADDRESS = re.compile(r"(?<!\$)\$\{\{\s*groups\[([0-9]{1,6})\]\.replicas\[([0-9]{1,6})\]\.IP_ADDRESS\s*\}\}")


def mentions(command: str) -> bool:
    return _ADDRESS.search(command) is not None


def unknown(command: str, least: Sequence[int]) -> list[str]:
    """What the command names that is no replica, or none that is always there; `least`: how many each group has."""
    return [found[0] for found in _ADDRESS.finditer(command) if not _always(found, least)]


def _always(found: re.Match[str], least: Sequence[int]) -> bool:
    group, index = _reference(found)
    return group < len(least) and index < least[group]


def _reference(found: re.Match[str]) -> Reference:
    return int(found[1]), int(found[2])


def needed(spec: JobSpec) -> frozenset[Reference]:
    """Whose addresses a replica must have before it starts."""
    named = {_reference(found) for command in spec.commands for found in _ADDRESS.finditer(command)}
    router = _router(spec)
    return frozenset(named if router is None else {*named, router})


def _router(spec: JobSpec) -> Reference | None:
    """Of a worker that finds the others by its router."""
    return None if spec.routing != "worker" or spec.discovery is None else (spec.discovery, 0)


def filled(command: str, addresses: Mapping[Reference, str]) -> str:
    return _ADDRESS.sub(lambda found: addresses.get(_reference(found), found[0]), command)


def environment(spec: JobSpec, addresses: Mapping[Reference, str]) -> dict[str, str]:
    router = _router(spec)
    return {} if router is None else {ROUTER_IP: addresses[router]}


def members(jobs: Iterable[Job], group: str, deployment_num: int) -> list[Job]:
    """The replicas of a group that are there, or will be, as they are counted here."""
    found = [
        job
        for job in jobs
        if (job.replica_group, job.deployment_num) == (group, deployment_num) and job.draining_at is None
        if not job.finished and job.status is not JobStatus.terminating
    ]
    return sorted(found, key=lambda job: job.replica_num)
