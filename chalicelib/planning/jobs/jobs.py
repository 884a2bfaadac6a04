"""From a run's spec to its jobs, in three translations: `effective` is the run with every default filled in (the plan
prints it), `job_specs` is what runs (the wire's JobSpec), `agent_task` is what an agent gets for a job on an instance.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol, cast

from chalicelib.domain.gpu_names import vendor_of
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import SECOND
from chalicelib.domain.job_specs import AppSpec, JobSpec, Requirements, RetryPolicy, UnixUser, own_of
from chalicelib.domain.jobs import Job
from chalicelib.domain.ranges import Range
from chalicelib.domain.reasons import RetryEvent
from chalicelib.domain.specs.mounts import InstanceMountPoint
from chalicelib.domain.specs.profiles import ProfileRetry
from chalicelib.domain.specs.resources import GPUSpec, ResourcesSpec
from chalicelib.domain.specs.runs import DevEnvironmentConfiguration, RunSpec, TaskConfiguration
from chalicelib.domain.specs.services import ServiceConfiguration, of_group
from chalicelib.domain.specs.workloads import RunConfiguration
from chalicelib.errors import Invalid, Problem
from chalicelib.machines.job import GRACE
from chalicelib.planning.jobs import command_lists, dev_environments, inner_engine, neighbours, replica_groups
from chalicelib.planning.jobs.nodes import Nodes, one_node, task_env
from chalicelib.planning.matching.requirements import merged_run, needing_container
from chalicelib.planning.volumes.mounts import folder, has_folders, mounts_of

if TYPE_CHECKING:
    from chalicelib.contract import agent as contract
    from chalicelib.domain.specs.workloads import RegistryAuth

RETRY_DURATION = 3600
NO_CODE = "/workflow"
INSIDE = "inside"  # the runtime of an agent whose container is the job's
ANY_HOME = "/root"  # what clients send if nothing is set: the home of the job's user
RESERVED_PORTS = range(10_000, 11_000)  # reserved by the language

_SHELLS = {"sh": "/bin/sh", "bash": "/bin/bash"}


class DefaultImages(Protocol):
    """The images of jobs that set none; `{python}` is filled in."""

    @property
    def base(self) -> str: ...
    @property
    def devel(self) -> str: ...
    @property
    def python(self) -> str: ...
    @property
    def docker(self) -> str: ...


def effective(run_spec: RunSpec) -> RunSpec:
    """The run as it will be executed: its profile merged in, and defaults filled in."""
    config = merged_run(run_spec)
    filled: dict[str, Any] = {"priority": config.priority or 0}
    if config.spot_policy is None:
        filled["spot_policy"] = "on-demand"
    filled["resources"] = _resources(config)
    if isinstance(config, TaskConfiguration) and config.nodes is None and config.groups is None:
        filled["nodes"] = 1
    if isinstance(config, ServiceConfiguration) and config.replicas is None and config.groups is None:
        filled["replicas"] = Range[int](min=1, max=1)
    return run_spec.with_(configuration=config.with_(**filled))


def job_specs(run_spec: RunSpec, *, images: DefaultImages, isolated: bool = False) -> tuple[JobSpec, ...]:
    """The specs of a run's jobs: one for each node of a task, or for each replica group of a service. `isolated`: only
    where jobs are separated from the agent."""
    config = merged_run(run_spec)
    name = run_spec.run_name or config.name or "run"
    if isinstance(config, ServiceConfiguration):
        return tuple(
            _job_spec(run_spec, of_group(config, group), name, 1, images, isolated=isolated).with_(
                replica_group=group,
                service_port=config.port.container_port,
                probes=replica_groups.probes_of(config, group),
                routing=replica_groups.routing(config, group),
                discovery=replica_groups.discovery(config),
                networked=replica_groups.networked(config),
                unwatched=config.probes == (),
                queued=replica_groups.queues(config, group),
                volumes=mounts_of(config.volumes, 0),
            )
            for group in replica_groups.groups_of(config)
        )
    groups = _groups(config)
    count = sum(nodes for _, nodes, _ in groups)
    found: list[JobSpec] = []
    for index, (group, nodes, own) in enumerate(groups):
        spec = _job_spec(run_spec, own, name, count, images, isolated=isolated)
        rank = len(found)
        first = spec.with_(job_num=rank, job_name=f"{name}-{rank}-0", node_group_index=index, node_group_name=group)
        every = [first, *(first.with_(**own_of(vars(first), number)) for number in range(1, nodes))]
        found += (
            [each.with_(volumes=mounts_of(config.volumes, each.job_num)) for each in every] if config.volumes else every
        )
    return tuple(found)


def by_group(specs: Sequence[JobSpec]) -> list[Sequence[JobSpec]]:
    """Specs grouped so that those of a group differ only in their number."""
    groups = groupby(specs, key=lambda spec: (spec.replica_group, spec.node_group_index, spec.volumes))
    return [tuple(found) for _, found in groups]


def _groups(config: RunConfiguration) -> list[tuple[str, int, RunConfiguration]]:
    """The groups of a run's nodes: name, size, and the configuration of each node. Ranks count through them in
    order."""
    if not isinstance(config, TaskConfiguration) or config.groups is None:
        nodes = config.nodes or 1 if isinstance(config, TaskConfiguration) else 1
        return [("0", nodes, config)]
    return [
        (
            group.name or str(at),
            group.nodes,
            config.with_(commands=group.commands, ports=group.ports, resources=group.resources),
        )
        for at, group in enumerate(config.groups)
    ]


def _job_spec(
    run_spec: RunSpec, config: RunConfiguration, name: str, nodes: int, images: DefaultImages, *, isolated: bool
) -> JobSpec:
    needs = requirements(config)
    return JobSpec(
        job_name=f"{name}-0-0",
        jobs_per_replica=nodes,
        app_specs=_apps(config),
        user=_user(config.user),
        **_commands(config, name),
        env={key: str(value) for key, value in config.env.items()},
        home_dir=config.home_dir,
        image_name=_image(config, images),
        privileged=config.privileged or bool(config.docker),
        docker=bool(config.docker),
        single_branch=_single_branch(config),
        max_duration=None if config.max_duration == "off" else config.max_duration,
        stop_duration=_stop_duration(config),
        utilization_policy=config.utilization_policy,
        registry_auth=config.registry_auth,
        requirements=needs.with_(multinode=True) if nodes > 1 else needs,
        retry=_retry(config.retry),
        working_dir=config.working_dir,
        repo_id=run_spec.repo_id or "none",
        repo_data=None if run_spec.repo_data is None else run_spec.repo_data.model_dump(),
        repo_code_hash=run_spec.repo_code_hash,
        repo_dir=_repo_dir(run_spec, config),
        repo_exists_action=config.repos[0].if_exists if config.repos else None,
        file_archives=run_spec.file_archives,
        runtime="docker" if needing_container(config) else None,
        isolated=isolated,
        dstack=config.dstack,
    )


def requirements(config: RunConfiguration) -> Requirements:
    return Requirements(
        resources=_resources(config),
        max_price=config.max_price,
        spot={"spot": True, "auto": None}.get(config.spot_policy or "", False),
        reservation=config.reservation,
        multinode=False,
    )


def _resources(config: RunConfiguration) -> ResourcesSpec:
    """`gpu: null` means the default; a vendor that follows from the names, or from the default image, is filled in."""
    spec = config.resources
    gpu = spec.gpu or GPUSpec(count=Range[int](min=0))
    if gpu.vendor is None and (gpu.count.max is None or gpu.count.max > 0):
        vendors = {vendor_of(name) for name in gpu.name or ()}
        if len(vendors) == 1:
            gpu = gpu.with_(vendor=vendors.pop())
        elif not vendors and gpu.count.min and not config.image and not config.docker:
            gpu = gpu.with_(vendor="nvidia")
    return spec.with_(gpu=gpu)


def _image(config: RunConfiguration, images: DefaultImages) -> str:
    if config.image:
        return config.image
    if config.docker:
        return images.docker
    chosen = images.devel if config.nvcc else images.base
    if config.python and "{python}" not in chosen:
        message = f"the default image here, {chosen}, has a fixed Python version"
        hint = "remove `python`, or use an `image` with the version you need"
        raise Invalid([Problem(message, path="python", hint=hint, code="unsupported")])
    return chosen.replace("{python}", config.python or images.python)


def _commands(config: RunConfiguration, run_name: str) -> dict[str, Any]:
    """The fields of a spec that say what runs. With an entrypoint the commands are its arguments; else a shell runs
    them until one fails."""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    if isinstance(config, DevEnvironmentConfiguration):
        before, commands, after = dev_environments.commands(config, run_name)
    elif isinstance(config, TaskConfiguration | ServiceConfiguration):
        commands = config.commands
    if config.entrypoint is not None and config.docker:
        message = "`docker` starts its engine in a shell before your commands, which an `entrypoint` would replace"
        raise Invalid([Problem(message, path="entrypoint", hint="put it first in `commands`", code="exclusive")])
    if config.entrypoint is not None:
        return {"commands": (*shlex.split(config.entrypoint), *commands)}
    if not commands and not after:
        return {"commands": ()}
    if config.docker:
        before = (inner_engine.START, *before)
    shell = config.shell or ("/bin/sh" if config.image or config.docker else "/bin/bash")
    return {"shell": _SHELLS.get(shell, shell), "before": before, "commands": commands, "after": after}


def _single_branch(config: RunConfiguration) -> bool:
    """Clone only one branch? A dev environment gets all branches by default."""
    return not isinstance(config, DevEnvironmentConfiguration) if config.single_branch is None else config.single_branch


def _user(written: str | None) -> UnixUser | None:
    if written is None:
        return None
    user, _, group = written.partition(":")
    return UnixUser(
        uid=int(user) if user.isdecimal() else None,
        username=None if user.isdecimal() else user,
        gid=int(group) if group.isdecimal() else None,
        groupname=None if not group or group.isdecimal() else group,
    )


def _stop_duration(config: RunConfiguration) -> int | None:
    """In seconds; None: no limit."""
    if config.stop_duration is None:
        return GRACE // SECOND
    return None if config.stop_duration == "off" else config.stop_duration


def _repo_dir(run_spec: RunSpec, config: RunConfiguration) -> str:
    """The directory of the code; without any code, the default that clients know."""
    written = run_spec.repo_dir or (config.repos[0].path if config.repos else None)
    kind = None if run_spec.repo_data is None else run_spec.repo_data.repo_type
    has_code = run_spec.repo_code_hash is not None or kind in ("remote", "local")
    return (written or ".") if has_code else NO_CODE


def _retry(written: ProfileRetry | bool | None) -> RetryPolicy | None:
    if not written:
        return None
    every = tuple(event.value for event in RetryEvent)
    if written is True:
        return RetryPolicy(on_events=every, duration=RETRY_DURATION)
    duration = RETRY_DURATION if written.duration is None else written.duration
    return RetryPolicy(on_events=written.on_events or every, duration=duration)


def _apps(config: RunConfiguration) -> tuple[AppSpec, ...]:
    if not isinstance(config, TaskConfiguration | DevEnvironmentConfiguration):
        return ()
    open_ports = [port for port in config.ports if port.container_port not in RESERVED_PORTS]
    return tuple(
        AppSpec(port=port.container_port, map_to_port=port.local_port, app_name=f"app_{number}")
        for number, port in enumerate(open_ports)
    )


# --- what an agent gets ----------------------------------------------------------------------------------------------


def agent_repo(spec: JobSpec) -> contract.TaskRepo | None:
    """The repository in the agent protocol, without the parts that only the store has: URL, credentials and code."""
    data = spec.repo_data or {}
    skips = spec.repo_exists_action == "skip"
    found: contract.TaskRepo = {"path": spec.repo_dir, "if_exists": "skip" if skips else "error"}
    if data.get("repo_type") == "local" and spec.repo_code_hash:
        return found
    if data.get("repo_type") != "remote":
        return None
    return {
        **found,
        "name": data["repo_name"],
        "branch": data.get("repo_branch") or None,
        "hash": data.get("repo_hash") or None,
        "single_branch": spec.single_branch is not False,
        "user_name": data.get("repo_config_name"),
        "user_email": data.get("repo_config_email"),
    }


def agent_task(
    job: Job,
    spec: JobSpec,
    instance: Instance,
    project_name: str,
    nodes: Nodes | None = None,
    addresses: Mapping[neighbours.Reference, str] | None = None,
) -> contract.PlannedTask:
    """The task in the agent protocol. A job that has the whole machine gets no limits (0). `nodes`: None if it runs on
    one. `addresses`: of the replicas that it `needed`."""
    known, inside = addresses or {}, instance.offer.is_container
    nodes = nodes or one_node(job, instance)
    offer = job.assignment.offer if job.assignment else instance.offer
    has, whole = offer.instance.resources, offer.blocks == offer.total_blocks
    shm = spec.requirements.resources.shm_size
    commands = [neighbours.filled(nodes.filled(command), known) for command in spec.commands]
    own = job.project_id == instance.project_id  # jobs of others get no folders of the host, not even optional ones
    return {
        "id": job.id,
        "name": job.name,
        "project": project_name,
        "project_id": job.project_id,
        **_run(spec, commands or list(instance.image_command)),
        "env": {**instance.env, **task_env(job, spec, nodes), **neighbours.environment(spec, known), **spec.env},
        "image": spec.image_name,
        "runtime": INSIDE if inside else spec.runtime,
        "isolated": spec.isolated or not own,
        "user": None if spec.user is None else cast("contract.TaskUser", spec.user.model_dump()),
        "user_permitted": spec.user_permitted and own,
        "working_dir": spec.working_dir,
        "privileged": spec.privileged,
        "docker": spec.docker,
        "ports": sorted({app.port for app in spec.app_specs}),
        "registry_auth": None if spec.registry_auth is None or inside else _registry_login(spec.registry_auth),
        "cpu": 0 if whole else has.cpus,
        "memory_bytes": 0 if whole else has.memory_mib << 20,
        "shm_bytes": 0 if shm is None else int(shm * 2**30),
        "gpus": len(has.gpus),
        "gpu_devices": [],
        "max_duration": spec.max_duration,
        "stop_duration": spec.stop_duration,
        "files": [
            {"id": archive.id, "path": archive.path, "url": f"/agent/files/{archive.id}"}
            for archive in spec.file_archives
        ],
        "repo": agent_repo(spec),
        "hostfile": nodes.hostfile(),
        "host_user": instance.host.user if instance.host is not None else None,
        "volumes": [folder(mount) for mount in spec.volumes if isinstance(mount, InstanceMountPoint)]
        if own and has_folders(instance.offer)
        else [],
        "home_dir": None if spec.home_dir == ANY_HOME else spec.home_dir,
        **_replica(spec),
    }


def _registry_login(auth: RegistryAuth) -> contract.RegistryLogin:
    return {"username": auth.username, "password": auth.password}


def _run(spec: JobSpec, commands: list[str]) -> contract.TaskCommands:
    """What the agent executes, with a name for each command for the message of a job that ends in it."""
    if spec.shell is None:
        joined = spec.commands[1:3] == ("-i", "-c")  # of a spec that was stored when they were one text
        return {"commands": commands, "shell": spec.commands[0] if joined else None}
    argv = command_lists.argv(spec.shell, [*spec.before, *commands, *spec.after])
    return {"commands": argv, "shell": spec.shell, "steps": command_lists.names(spec.before, commands, spec.after)}


def _replica(spec: JobSpec) -> contract.TaskOptions:
    """The settings for a service's replica: how to probe it, and whether to report its engine's waiting requests."""
    if spec.service_port is None:
        return {}
    probes = [cast("contract.TaskProbe", probe.model_dump(mode="json")) for probe in spec.probes]
    found: contract.TaskOptions = {"service_port": spec.service_port, "probes": probes, "queue": spec.queued}
    if spec.networked:  # others must reach its ports
        found["network"] = "host"
    if spec.routing is not None:
        found["router"] = spec.routing == "router" and spec.discovery is None
    return found
