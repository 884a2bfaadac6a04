"""What an agent is told of a task: the job's spec, what it brings along, and its secrets filled in.

Secrets are filled in here and nowhere before: stored specs keep the reference, so a secret is in no record, log or
event, and one that was changed meanwhile is used as it is now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chalicelib.configuration.interpolation import fill, secrets_in
from chalicelib.domain.instances import Instance
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job
from chalicelib.domain.runs import RunBody
from chalicelib.domain.tenants import Archive, Project, Secret
from chalicelib.errors import Bug, Refused
from chalicelib.planning.jobs import agent_task
from chalicelib.store import keys, nouns
from chalicelib.usecases.context import Plane
from chalicelib.usecases.files import archive_id
from chalicelib.usecases.secrets import opened


def job_spec(plane: Plane, job: Job) -> JobSpec:
    body = nouns.find(plane.store, RunBody, keys.run_body(job.run_id, job.deployment_num))
    if body is None:
        raise Bug(f"run {job.run_id} has no spec at deployment {job.deployment_num}")
    specs = [JobSpec.model_validate_json(text) for text in body.job_specs]
    found = next((spec for spec in specs if (spec.replica_num, spec.job_num) == job.slot), None)
    if found is None:
        raise Bug(f"job {job.id} has no spec for replica {job.replica_num}, node {job.job_num}")
    return found


def task_of(plane: Plane, job: Job, instance: Instance) -> dict[str, Any]:
    """The task as the protocol has it. Raises Refused for a secret that isn't there."""
    spec = job_spec(plane, job)
    project = nouns.find(plane.store, Project, keys.project(job.project_id))
    if project is None:
        raise Bug(f"job {job.id} belongs to project {job.project_id}, which isn't there")
    task = agent_task(job, spec, instance, project.name)
    task["files"] = [*_code(plane, job, spec), *task["files"]]
    return fill_secrets(plane, job.project_id, task)


def _code(plane: Plane, job: Job, spec: JobSpec) -> list[dict[str, str]]:
    """The code uploaded for the run's repo: what the working folder holds before anything else."""
    if not spec.repo_code_hash:
        return []
    archive = nouns.find(plane.store, Archive, keys.archive(archive_id(job.project_id, spec.repo_code_hash)))
    if archive is None:
        raise Refused("The code of this run was never uploaded.", hint="Apply the run again.")
    return [{"id": archive.id, "path": ".", "url": f"/agent/files/{archive.id}"}] if archive.size else []


def archives_of(plane: Plane, job: Job) -> frozenset[str]:
    """The ids of what the job's task may fetch."""
    spec = job_spec(plane, job)
    code = (archive_id(job.project_id, spec.repo_code_hash),) if spec.repo_code_hash else ()
    return frozenset((*(archive.id for archive in spec.file_archives), *code))


def fill_secrets(plane: Plane, project_id: str, task: dict[str, Any]) -> dict[str, Any]:
    places = [task["env"], *([task["registry_auth"]] if task.get("registry_auth") else [])]
    texts = [text for place in places for text in place.values() if isinstance(text, str)]
    names = sorted({name for text in texts for name in secrets_in(text)})
    found = nouns.find_many(plane.store, Secret, [keys.secret(project_id, name) for name in names]) if names else []
    missing = [name for name, secret in zip(names, found, strict=True) if secret is None]
    if missing:
        listed = ", ".join(f"`{name}`" for name in missing)
        raise Refused(
            f"The project has no secret {listed}, which the run's env or registry_auth refers to.",
            hint=f"Set it with `dstack secret set {missing[0]} <value>` and apply the run again.",
        )
    values = {secret.name: opened(plane, secret) for secret in found if secret is not None}
    filled = {**task, "env": _filled(task["env"], values)}
    if task.get("registry_auth"):
        filled["registry_auth"] = _filled(task["registry_auth"], values)
    return filled


def _filled(place: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: fill(text, {"secrets": values}, strict=False) if isinstance(text, str) else text
        for name, text in place.items()
    }
