"""What a container that is bought in place of a machine runs: the image of its job, with the agent in it.

The job's spec doesn't change, but the secrets to which its registry's login refers may, and so may the carriers that
bring Python. So the instance keeps those of the first request, the login sealed, until the container is accepted: a
repeated request is the same.

A gateway's container has no job: the agent installs nginx in an image of Debian.

The agent takes the place of the image's own entry point. A job without commands runs that entry point all the same; its
registry says what it is, before the container is requested, and the instance keeps it. All else of the image is in the
container: its user, its environment, its working folder.
"""

from __future__ import annotations

import math
from typing import Any

import orjson

from chalicelib.backends.spi import Container, ContainerMount, GangMember, RegistryLogin
from chalicelib.configuration.interpolation import secrets_in
from chalicelib.domain import container_script, keys
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Instance
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job, Mounted
from chalicelib.domain.programs import ARCHITECTURES
from chalicelib.domain.specs.workloads import RegistryAuth
from chalicelib.domain.volumes import Volume
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.job_secrets import MissingSecrets, filled, registry_login
from chalicelib.engine.read import Reader
from chalicelib.errors import Bug, Conflict, ContainerFailed
from chalicelib.planning.matching.isolation import text_of
from chalicelib.planning.volumes.attachments import held_early, mounted
from chalicelib.store import nouns
from chalicelib.store.seal import Sealer


def settings(here: EffectContext, instance: Instance) -> tuple[str, str, str, str]:
    """Of the agent of this machine: the server, the instance, the token with which it joins, the agent's program."""
    token = bootstrap_token(here.install_key, instance.id, instance.epoch)
    return here.server_url, instance.id, token, here.program()


class Containers:
    def __init__(self, here: EffectContext) -> None:
        self.here, self._read = here, Reader(here.store)

    def container_of(self, instance: Instance) -> tuple[Instance, Container] | None:
        """The instance as it is stored now, and its container. None: its job has ended, or somebody else changes it.
        Raises ContainerFailed if a secret or a volume is missing, and Throttled if a carrier is being made."""
        if instance.of_gateway:
            return self._of_gateway(instance)
        job = self._job(instance)
        if job is None or job.finished:
            return None
        spec = self._read.job_spec(job)
        mounts = self._mounts(instance, job, spec)
        found = self._requested(instance, job, spec)
        if found is not None and spec.runs_entry_point and not found.image_command:
            found = self._with_image_command(found, spec)
        if found is None:
            return None
        shm = spec.requirements.resources.shm_size
        return found, Container(
            image=spec.image_name,
            command=tuple(container_script.command()),
            env=container_script.settings(*settings(self.here, found), found.carriers or {}),
            login=self._login(found),
            user="" if spec.user is None else text_of(spec.user),
            privileged=spec.privileged,
            shm_mib=0 if shm is None else math.ceil(shm * 1024),  # the agent refuses less than the job wants
            mounts=mounts,
            gang=self._gang(found, spec),
            run=job.run_id,
        )

    def _of_gateway(self, instance: Instance) -> tuple[Instance, Container] | None:
        found = self._with_carriers(instance)
        if found is None:
            return None
        env = container_script.settings(*settings(self.here, found), found.carriers or {})
        return found, Container(container_script.GATEWAY_IMAGE, tuple(container_script.command()), env)

    def _with_carriers(self, instance: Instance) -> Instance | None:
        if instance.carriers is not None:
            return instance
        return self._saved(instance, {"carriers": self._carriers()})

    def _carriers(self) -> dict[str, str]:
        return {each: self.here.carrier(each) for each in ARCHITECTURES}

    def _job(self, instance: Instance) -> Job | None:
        claim = next(iter(instance.claims), None)
        if claim is None:
            return None
        key = keys.job(claim.run_id, claim.replica_num, claim.job_num, claim.submission_num)
        return nouns.find(self.here.store, Job, key)

    def _gang(self, instance: Instance, spec: JobSpec) -> GangMember | None:
        if not instance.gang:
            return None
        token = derive(f"{self.here.install_id}/{instance.project_id}/{instance.gang}", "gang")
        return GangMember(token, spec.job_num, spec.jobs_per_replica)

    # --- what may change between requests -----------------------------------------------------------------------------

    def _requested(self, instance: Instance, job: Job, spec: JobSpec) -> Instance | None:
        """The instance, stored with the login and the carriers of its first request. None: somebody else changes it."""
        changes: dict[str, Any] = {}
        if instance.carriers is None:
            changes["carriers"] = self._carriers()
        if spec.registry_auth is not None and not instance.registry_login:
            changes["registry_login"] = self._sealed_login(instance, job, spec.registry_auth, spec.image_name)
        if not changes:
            return instance
        return self._saved(instance, changes)

    def _with_image_command(self, instance: Instance, spec: JobSpec) -> Instance | None:
        """Raises ContainerFailed, or Throttled if the registry should be asked again."""
        architecture = instance.offer.instance.resources.cpu_arch or "x86"
        command = self.here.image_command(spec.image_name, self._login(instance), architecture)
        return self._saved(instance, {"image_command": command})

    def _saved(self, instance: Instance, changes: dict[str, Any]) -> Instance | None:
        saved = instance.with_(**changes)
        try:
            self.here.store.commit([nouns.put(saved)])
        except Conflict:
            return None
        return saved.with_(version=instance.version + 1)

    def _sealed_login(self, instance: Instance, job: Job, auth: RegistryAuth, image: str) -> str:
        stored = registry_login(self._seal, job.run_id, auth.model_dump())
        try:
            (login,) = filled(self.here.store, self._seal, job.project_id, [stored])
        except MissingSecrets as missing:
            raise ContainerFailed(
                f"The project has no secret {missing.listed}, to which the login for the registry of {image} refers. "
                f"Set it with `dstack secret set {missing.first} <value>`."
            ) from None
        marked = {**(login or {}), "secret_username": bool(secrets_in(stored["username"]))}
        return self._seal.seal(orjson.dumps(marked).decode(), context=_context(instance))

    def _login(self, instance: Instance) -> RegistryLogin | None:
        if not instance.registry_login:
            return None
        return RegistryLogin(**orjson.loads(self._seal.open(instance.registry_login, context=_context(instance))))

    @property
    def _seal(self) -> Sealer:
        if self.here.seal is None:
            raise Bug("a container with a login is bought where nothing can be sealed")
        return self.here.seal

    # --- volumes -----------------------------------------------------------------------------------------------------

    def _mounts(self, instance: Instance, job: Job, spec: JobSpec) -> tuple[ContainerMount, ...]:
        wanted = self._of_gang(instance, job, spec) if job.assignment is None else job.assignment.volumes
        found = nouns.find_many(self.here.store, Volume, [keys.volume(each.id) for each in wanted]) if wanted else []
        return tuple(_mount(each, volume) for each, volume in zip(wanted, found, strict=True))

    def _of_gang(self, instance: Instance, job: Job, spec: JobSpec) -> tuple[Mounted, ...]:
        """The volumes that one of several nodes has with its place, before it is assigned to that."""
        disks = [keys.volume(each) for each in instance.disks]
        found = [each for each in nouns.find_many(self.here.store, Volume, disks) if each is not None] if disks else []
        chosen = held_early(spec.volumes, found, job.id, instance.id)
        if chosen is None:
            raise ContainerFailed(f"A disk that {job.name} was to have on {instance.name} is gone.")
        return mounted(spec.volumes, chosen)


def _mount(wanted: Mounted, volume: Volume | None) -> ContainerMount:
    if volume is None or volume.handle is None:
        raise ContainerFailed(f"The disk of volume {wanted.name}, to be mounted at {wanted.path}, is gone.")
    return ContainerMount(volume.handle, wanted.path, volume.read_only)


def _context(instance: Instance) -> str:
    return f"registry-login/{instance.id}/{instance.epoch}"
