"""A deployed stage, accessed with the deployer's own credentials: the functions' code on the same table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields

from chalicelib.domain import keys
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.retention import Retention
from chalicelib.domain.volumes import Volume
from chalicelib.runtime.lambda_ import Boto, LambdaRoot, parameters
from chalicelib.runtime.settings import LambdaSettings, emulator
from chalicelib.store import nouns
from chalicelib.store.listing import all_of, every
from chalicelib.store.port import Store

# The deployer's environment variables that are passed on to every function.
PASSED = (
    *("DSTACK_API_URL", "DSTACK_AGENT_URL", "DSTACK_SYNC_SECONDS", "DSTACK_AWS_ENDPOINT", "DSTACK_LONGEST_CHAIN"),
    *("DSTACK_FAKE_CLOUD", "DSTACK_FAKE_CLOUD_NAME", "DSTACK_BACKEND_ENDPOINTS", "DSTACK_CATALOG_URL"),
    *("DSTACK_DOCKER_BASE_IMAGE", "DSTACK_DOCKER_DEVEL_IMAGE", "DSTACK_DEFAULT_PYTHON", "DSTACK_DIND_IMAGE"),
    *(f"DSTACK_RETAIN_{one.name.upper()}" for one in fields(Retention)),
)


def prefix(stage: str) -> str:
    """The path of a stage's parameters in Parameter Store."""
    return f"/dstack-{stage}"


def variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    given = os.environ if environ is None else environ
    return {name: given[name] for name in PASSED if given.get(name)}


def settings(stage: str) -> LambdaSettings:
    """Raises NotDeployed."""
    return LambdaSettings.read(parameters(Boto(emulator())), {**variables(), "DSTACK_KEYS": prefix(stage)})


def root(found: LambdaSettings) -> LambdaRoot:
    return LambdaRoot(found, clients=Boto(emulator()))


def costing(store: Store) -> Iterator[str]:
    """What would continue to cost money, or to use hosts, without a control plane."""
    for name in every(store, "projects", "name/"):
        project = name.key.sk.removeprefix("name/")
        project_id = nouns.pointed(name)
        for owner in _owners(store, project_id):
            for record in all_of(store, "gsi1", keys.instances_of(owner)):
                instance = nouns.read(Instance, record)
                if instance.status is not InstanceStatus.terminated:
                    yield f"{instance.name} in {project} ({instance.status})"
        for record in all_of(store, "gsi1", keys.volumes_of(project_id)):
            volume = nouns.read(Volume, record)
            if not volume.deleted and not volume.external:
                yield f"the volume {volume.name} in {project}"


def _owners(store: Store, project_id: str) -> Iterator[str]:
    """The owners of machines and hosts: fleets, and gateways, which may have bought their own machines. A deleted owner
    may still have machines that aren't gone yet."""
    yield from (nouns.pointed(fleet) for fleet in every(store, f"project/{project_id}", "fleet-name/"))
    yield from (nouns.read(Gateway, each).id for each in all_of(store, "gsi1", keys.gateways_of(project_id)))
