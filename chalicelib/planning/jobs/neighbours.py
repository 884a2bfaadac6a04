"""Addresses of other replicas that a service's replica gets when it starts.

A command may name a replica as `groups[i].replicas[j].IP_ADDRESS`: of group i, the j-th by number among those of the
same version; it must be within the group's minimum. The workers of a Dynamo router find each other through services
beside the router, so they get its address in a variable. A replica starts once all replicas that it names have machines
with an address. None waits for another's start, so two may name each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job, JobStatus

Reference = tuple[int, int]  # the indexes of a group and of a replica in it

ROUTER_IP = "DSTACK_ROUTER_INTERNAL_IP"

_ADDRESS = re.compile(r"(?<!\$)\$\{\{\s*groups\[([0-9]{1,6})\]\.replicas\[([0-9]{1,6})\]\.IP_ADDRESS\s*\}\}")


def mentions(command: str) -> bool:
    return _ADDRESS.search(command) is not None


def unknown(command: str, least: Sequence[int]) -> list[str]:
    """The references of a command to replicas that don't exist, or may not. `least`: the minimum of each group."""
    return [found[0] for found in _ADDRESS.finditer(command) if not _always(found, least)]


def _always(found: re.Match[str], least: Sequence[int]) -> bool:
    group, index = _reference(found)
    return group < len(least) and index < least[group]


def _reference(found: re.Match[str]) -> Reference:
    return int(found[1]), int(found[2])


def needed(spec: JobSpec) -> frozenset[Reference]:
    """The replicas whose addresses a replica needs before it starts."""
    named = {_reference(found) for command in spec.commands for found in _ADDRESS.finditer(command)}
    router = _router(spec)
    return frozenset(named if router is None else {*named, router})


def _router(spec: JobSpec) -> Reference | None:
    """The router of a worker that finds the others through it; None for all others."""
    return None if spec.routing != "worker" or spec.discovery is None else (spec.discovery, 0)


def filled(command: str, addresses: Mapping[Reference, str]) -> str:
    return _ADDRESS.sub(lambda found: addresses.get(_reference(found), found[0]), command)


def environment(spec: JobSpec, addresses: Mapping[Reference, str]) -> dict[str, str]:
    router = _router(spec)
    return {} if router is None else {ROUTER_IP: addresses[router]}


def members(jobs: Iterable[Job], group: str, deployment_num: int) -> list[Job]:
    """The live replicas of a group in the order in which references count them."""
    found = [
        job
        for job in jobs
        if (job.replica_group, job.deployment_num) == (group, deployment_num) and job.draining_at is None
        if not job.finished and job.status is not JobStatus.terminating
    ]
    return sorted(found, key=lambda job: job.replica_num)
