"""What a container that is bought in place of a machine runs: the image of its job, with the agent in it.

The job's spec doesn't change, but the secrets may that its registry's login refers to. So the login of the first
request is kept with the instance, sealed, until the container is accepted: a repeated request is the same.
"""

from __future__ import annotations

import orjson

from chalicelib.backends.spi import Container, ContainerMount, RegistryLogin
from chalicelib.configuration.interpolation import secrets_in
from chalicelib.domain import container_script, keys
from chalicelib.domain.instances import Instance
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job
from chalicelib.domain.volumes import Volume
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.job_secrets import filled, registry_login
from chalicelib.engine.read import Reader
from chalicelib.errors import Bug, Conflict, ContainerFailed, Refused
from chalicelib.planning.matching.isolation import text_of
from chalicelib.store import nouns
from chalicelib.store.seal import Sealer


def settings(here: EffectContext, instance: Instance) -> tuple[str, str, str, str]:
    """Of the agent of this machine: the server, the instance, the token with which it joins, the agent's program."""
    token = bootstrap_token(here.install_key, instance.id, instance.epoch)
    return here.server_url, instance.id, token, here.program()


class Containers:
    def __init__(self, here: EffectContext) -> None:
        self.here, self._read = here, Reader(here.store)

    def prepared(self, instance: Instance) -> tuple[Instance, Container] | None:
        """The instance as it is stored now, and its container. None: its job has ended, or somebody else changes it.
        Raises ContainerFailed if the login can't be filled in."""
        job = self._job(instance)
        if job is None or job.finished:
            return None
        spec = self._read.job_spec(job)
        if spec.registry_auth is not None and not instance.registry_login:
            found = self._with_login(instance, job, spec)
            if found is None:
                return None
            instance = found
        shm = spec.requirements.resources.shm_size
        return instance, Container(
            image=spec.image_name,
            command=tuple(container_script.command()),
            env=container_script.settings(*settings(self.here, instance), self._carriers()),
            login=self._login(instance),
            user="" if spec.user is None else text_of(spec.user),
            privileged=spec.privileged,
            shm_mib=0 if shm is None else round(shm * 1024),
            mounts=self._mounts(job),
        )

    def _carriers(self) -> dict[str, str]:
        """For every architecture, because many offers don't name theirs."""
        return {architecture: self.here.carrier(architecture) for architecture in container_script.CARRIER_SETTINGS}

    def _job(self, instance: Instance) -> Job | None:
        claim = next(iter(instance.claims), None)
        if claim is None:
            return None
        key = keys.job(claim.run_id, claim.replica_num, claim.job_num, claim.submission_num)
        return nouns.find(self.here.store, Job, key)

    # --- the login ---------------------------------------------------------------------------------------------------

    def _with_login(self, instance: Instance, job: Job, spec: JobSpec) -> Instance | None:
        """The instance, stored with the login that its requests have from now on."""
        assert spec.registry_auth is not None
        stored = registry_login(self._seal, job.run_id, spec.registry_auth.model_dump())
        try:
            (login,) = filled(self.here.store, self._seal, job.project_id, [stored])
        except Refused as refused:
            raise ContainerFailed(f"{refused} {refused.hint}".strip()) from None
        marked = {**(login or {}), "secret_username": bool(secrets_in(stored["username"]))}
        text = self._seal.seal(orjson.dumps(marked).decode(), context=_context(instance))
        saved = instance.with_(registry_login=text)
        try:
            self.here.store.commit([nouns.put(saved)])
        except Conflict:
            return None
        return saved.with_(version=instance.version + 1)

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

    def _mounts(self, job: Job) -> tuple[ContainerMount, ...]:
        wanted = () if job.assignment is None else job.assignment.volumes
        found = nouns.find_many(self.here.store, Volume, [keys.volume(each.id) for each in wanted]) if wanted else []
        return tuple(
            ContainerMount(volume.handle, each.path, volume.read_only)
            for each, volume in zip(wanted, found, strict=True)
            if volume is not None and volume.handle is not None
        )


def _context(instance: Instance) -> str:
    return f"registry-login/{instance.id}/{instance.epoch}"
