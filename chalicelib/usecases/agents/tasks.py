"""A task as an agent gets it: the job's spec and its files, with secrets filled in.

Secrets are filled in and registry passwords opened as it is sent (`engine/job_secrets.py`): a secret that changed
meanwhile is used with its current value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import orjson
from pydantic import ValidationError

from chalicelib.configuration.interpolation import fill, unescaped
from chalicelib.domain import keys
from chalicelib.domain.gangs import Gang
from chalicelib.domain.instances import Instance
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job
from chalicelib.domain.runs import Run
from chalicelib.domain.tenants import Archive, Project, archive_id
from chalicelib.engine import job_secrets
from chalicelib.errors import Bug, Refused
from chalicelib.planning.jobs.jobs import NO_CODE, agent_task
from chalicelib.planning.jobs.neighbours import Reference
from chalicelib.planning.jobs.nodes import Nodes, fabric_env
from chalicelib.store import nouns
from chalicelib.usecases.ports import CredentialPorts, RecordPorts, SealedPorts
from chalicelib.usecases.runs import job_access, job_keys, neighbours, node_keys, repos

if TYPE_CHECKING:
    from chalicelib.contract import agent as contract

_WITH_SECRETS = ("env", "registry_auth")  # filled in last, which also removes escapes


class TaskPorts(job_access.DeliveryPorts, CredentialPorts, Protocol):
    """The ports for assembling a task."""


def task_of(
    plane: TaskPorts, job: Job, instance: Instance, disks: Sequence[contract.TaskDisk] = ()
) -> contract.Task | None:
    """The task in the form of the protocol; None while it needs addresses that other replicas don't have yet. Raises
    Refused if it can't be sent: a secret is missing, its stored spec can't be read, or it can't be encoded as JSON.
    Other tasks travel in the same response, so everything is tried here. `disks`: the task's volumes, which in a
    container the provider has mounted."""
    try:
        addresses = neighbours.addresses(plane, job)
        if addresses is None:
            return None
        task = _task(plane, job, instance, addresses)
        task["volumes"] = [*(() if instance.offer.is_container else disks), *task["volumes"]]
        orjson.dumps(task)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise Refused(f"The task can't be sent to its host: {where} of its stored spec: {first['msg']}.") from None
    except orjson.JSONEncodeError as error:
        raise Refused(f"The task can't be sent to its host: {error}.") from None
    return task


def _task(plane: TaskPorts, job: Job, instance: Instance, addresses: Mapping[Reference, str]) -> contract.Task:
    spec = plane.read.job_spec(job)
    project = nouns.find(plane.store, Project, keys.project(job.project_id))
    if project is None:
        raise Bug(f"job {job.id} belongs to project {job.project_id}, which doesn't exist")
    if spec.jobs_per_replica > 1:
        planned = _one_of_several(plane, job, spec, instance, project.name)
    else:
        planned = agent_task(job, spec, instance, project.name, addresses=addresses)
    allowed = job_keys.access(plane.read, job)
    host_network = planned.get("network") == "host" or instance.offer.is_container
    reach = job_access.environment(plane, job, spec, instance, project.name, host_network=host_network)
    if reach:
        planned = {**planned, "env": {**planned["env"], **reach, **spec.env}}
    task: contract.Task = {**planned, "access": allowed.revision, "authorized_keys": list(allowed.keys)}
    if auth := task["registry_auth"]:
        task["registry_auth"] = cast("contract.RegistryLogin", job_secrets.registry_login(plane.seal, job.run_id, auth))
    code = _code(plane, job, spec)
    if task["repo"] is None:
        place = "." if spec.repo_dir == NO_CODE else spec.repo_dir
        brought: list[contract.TaskFile] = [{**each, "path": place} for each in code]
        task["files"] = [*brought, *task["files"]]
    else:
        task["repo"] = _repo(plane, job, spec, task["repo"], code)
    if task.get("probes"):
        task["probes"] = [_probe(probe, task["env"]) for probe in task["probes"]]
    as_meant = {name: part if name in _WITH_SECRETS else unescaped(part) for name, part in task.items()}
    return cast("contract.Task", fill_secrets(plane, job.project_id, as_meant))


def _probe(probe: contract.TaskProbe, env: Mapping[str, str]) -> contract.TaskProbe:
    """The probe, with the job's environment variables filled in. Secrets stay out of probes: apps log requests."""
    headers = [{**each, "value": _with_env(each["value"], env)} for each in probe["headers"]]
    body = None if probe["body"] is None else _with_env(probe["body"], env)
    return {**probe, "url": _with_env(probe["url"], env), "body": body, "headers": headers}


def _with_env(text: str, env: Mapping[str, str]) -> str:
    return fill(text, {"env": env}, unescape=False)


def _one_of_several(
    plane: CredentialPorts, job: Job, spec: JobSpec, instance: Instance, project_name: str
) -> contract.PlannedTask:
    """The task of a node, with all nodes of its attempt: their addresses were published before it was placed. It runs
    in the network that those addresses belong to, and may use the machine's fast one."""
    gang = nouns.find(plane.store, Gang, keys.gang(job.run_id, job.replica_num, job.submission_num))
    if gang is None or not gang.addresses:
        raise Bug(f"job {job.id} was placed before the addresses of its nodes were published")
    nodes = Nodes.of(gang, plane.read.job_specs(job.run_id, job.deployment_num))
    names = [job.with_(job_num=rank).name for rank in range(gang.nodes)]
    task, fast = agent_task(job, spec, instance, project_name, nodes), instance.offer.terms.interconnect
    if fast is not None:
        task["env"] = {**fabric_env(fast, job.job_num, nodes), **task["env"]}
        given = {"folders", "devices", "writable", "libraries", "sidecars"}  # to the agent
        more = fast.model_dump(mode="json", include=given, exclude_defaults=True)
        task["interconnect"] = cast("contract.TaskInterconnect", {"folders": [], "devices": [], **more})
    return {
        **task,
        "network": "host",
        "hostfile": node_keys.hostfile(nodes, names),
        "node_ssh": node_keys.node_ssh(plane.install_key, gang, nodes, names, job.job_num),
    }


def _code(plane: RecordPorts, job: Job, spec: JobSpec) -> list[contract.TaskArchive]:
    """The code uploaded for the run's repo, if any: a patch to a remote repo, else the content of the folder."""
    if not spec.repo_code_hash:
        return []
    archive = nouns.find(plane.store, Archive, keys.archive(archive_id(job.project_id, spec.repo_code_hash)))
    if archive is None:
        raise Refused("The code of this run was never uploaded.", hint="Apply the run again.")
    return [{"id": archive.id, "url": f"/agent/files/{archive.id}"}] if archive.size else []


def _repo(
    plane: SealedPorts, job: Job, spec: JobSpec, repo: contract.TaskRepo, code: list[contract.TaskArchive]
) -> contract.TaskRepo | None:
    """The repository with its code and, if it is cloned, with the address and the credentials of the run's user."""
    if "name" not in repo:
        return {**repo, "code": code[0]} if code else None
    run = nouns.find(plane.store, Run, keys.run(job.run_id))
    known = None if run is None else repos.access(plane, job.project_id, run.user_id, spec.repo_id)
    if known is None:
        raise Refused(
            f"The run's user has registered no repository {spec.repo_id!r} any more.",
            hint="Register it with `dstack init -P REPO`, and apply the run again.",
        )
    return {
        **repo,
        "url": known.url,
        "oauth_token": known.oauth_token,
        "private_key": known.private_key,
        "code": code[0] if code else None,
    }


def archives_of(plane: RecordPorts, job: Job) -> frozenset[str]:
    """The ids of the archives that the job's task may download."""
    spec = plane.read.job_spec(job)
    code = (archive_id(job.project_id, spec.repo_code_hash),) if spec.repo_code_hash else ()
    return frozenset((*(archive.id for archive in spec.file_archives), *code))


def fill_secrets(plane: SealedPorts, project_id: str, task: dict[str, Any]) -> dict[str, Any]:
    env, login = job_secrets.filled(plane.store, plane.seal, project_id, (task["env"], task.get("registry_auth")))
    return {**task, "env": env or {}, **({"registry_auth": login} if login else {})}
