"""A job's spec, which the plan derives from its run's. Field names are the wire's JobSpec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from chalicelib.domain.jobs import Job
from chalicelib.domain.noun import Value
from chalicelib.domain.specs.fleets import SSHKey
from chalicelib.domain.specs.mounts import MountPoint
from chalicelib.domain.specs.profiles import UtilizationPolicy
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.domain.specs.runs import FileArchiveMapping
from chalicelib.domain.specs.services import HTTPHeaderSpec
from chalicelib.domain.specs.workloads import RegistryAuth


class Requirements(Value):
    resources: ResourcesSpec
    max_price: float | None = None
    spot: bool | None = None  # None: either
    reservation: str | None = None
    multinode: bool | None = None
    backend_options: tuple[Any, ...] | None = None


class RetryPolicy(Value):
    """`retry` with its defaults filled in; `duration` in seconds."""

    on_events: tuple[str, ...]
    duration: int


class AppSpec(Value):
    port: int
    map_to_port: int | None = None
    app_name: str
    url_path: str | None = None
    url_query_params: dict[str, str] | None = None


class UnixUser(Value):
    uid: int | None = None
    gid: int | None = None
    username: str | None = None
    groupname: str | None = None


class ProbeSpec(Value):
    """A probe with its defaults filled in; times in seconds."""

    type: Literal["http"] = "http"
    url: str
    method: str = "get"
    headers: tuple[HTTPHeaderSpec, ...] = ()
    body: str | None = None
    timeout: int = 10
    interval: int = 15
    ready_after: int = 1
    until_ready: bool = False


class JobSpec(Value):
    replica_num: int = 0
    job_num: int = 0
    job_name: str
    jobs_per_replica: int = 1
    replica_group: str = "0"
    app_specs: tuple[AppSpec, ...] = ()
    user: UnixUser | None = None
    shell: str | None = None  # runs the commands one by one; None: they are an argv; clients ignore it
    before: tuple[str, ...] = ()  # what the shell runs before the commands; clients ignore it
    commands: tuple[str, ...]
    after: tuple[str, ...] = ()  # what the shell runs after the commands; clients ignore it
    env: dict[str, str]
    home_dir: str | None = None
    image_name: str
    privileged: bool = False
    docker: bool = False  # with an engine of its own; clients ignore it
    single_branch: bool | None = None
    max_duration: int | None = None  # seconds; None: off
    stop_duration: int | None = None  # seconds from the request to exit to the kill; None: no limit
    utilization_policy: UtilizationPolicy | None = None
    registry_auth: RegistryAuth | None = None
    requirements: Requirements
    retry: RetryPolicy | None = None
    volumes: tuple[MountPoint, ...] = ()
    ssh_key: SSHKey | None = None
    working_dir: str | None = None
    repo_id: str = "none"  # for DSTACK_REPO_ID; clients ignore it
    repo_data: Any | None = None
    repo_code_hash: str | None = None
    repo_dir: str = "/workflow"
    repo_exists_action: str | None = None
    file_archives: tuple[FileArchiveMapping, ...] = ()
    service_port: int | None = None  # set for replicas of services only
    probes: tuple[ProbeSpec, ...] = ()
    unwatched: bool = False  # `probes: []`: a replica is ready before anything listens; clients ignore it
    queued: bool = False  # it also scales by the requests that wait inside its engine; clients ignore it
    routing: Literal["router", "worker"] | None = None  # its part in a service with a router; clients ignore it
    discovery: int | None = None  # index of the router's group, if workers find it by themselves; clients ignore it
    networked: bool = False  # replicas of its service reach each other, in their hosts' network; clients ignore it
    node_group_index: int = 0
    node_group_name: str = "0"
    node_group_job_index: int = 0
    runtime: str | None = None  # `docker`: needs a container; clients ignore it
    isolated: bool = False  # its user may not share the agent's user; clients ignore it
    dstack: bool = False  # it gets a token with which it calls this control plane; clients ignore it
    user_permitted: bool = False  # `user` may be a user of its host, where it is a plain process; clients ignore it

    @property
    def runs_entry_point(self) -> bool:
        """Does it run what its image itself runs?"""
        return not (self.commands or self.after)


def own_of(first: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The fields in which a node's spec differs from that of its group's first node."""
    rank = first["job_num"] + number
    run_name = first["job_name"].rsplit("-", 2)[0]
    return {
        "job_num": rank,
        "job_name": f"{run_name}-{rank}-{first['replica_num']}",
        "node_group_job_index": first["node_group_job_index"] + number,
    }


def replica_of(group: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The fields in which the spec of a service's replica differs from that of its group."""
    run_name = group["job_name"].rsplit("-", 2)[0]
    return {"replica_num": number, "job_name": f"{run_name}-0-{number}"}


def spec_of(specs: Iterable[JobSpec], job: Job) -> JobSpec | None:
    """The spec of a job, among those of its run at the job's deployment; None if there is none."""
    for spec in specs:
        if spec.service_port is None:
            if (spec.replica_num, spec.job_num) == job.slot:
                return spec
        elif spec.replica_group == job.replica_group:
            return spec.with_(**replica_of(vars(spec), job.replica_num))
    return None
