"""Secrets of a project where a job refers to them: `${{ secrets.NAME }}` in its environment and its registry's login.

Only here are they filled in, when the job goes to its agent, or its registry's login to the provider that pulls its
image. Stored specs keep the reference or the sealed text, so no secret is in a record, log or event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chalicelib.configuration.interpolation import fill, secrets_in
from chalicelib.domain import keys
from chalicelib.domain.specs.workloads import RegistryAuth
from chalicelib.domain.tenants import Secret
from chalicelib.errors import Refused
from chalicelib.store import nouns, sealed_specs
from chalicelib.store.port import Store
from chalicelib.store.seal import Sealer


class MissingSecrets(Refused):
    def __init__(self, names: Sequence[str]) -> None:
        self.first, self.listed = names[0], ", ".join(f"`{name}`" for name in names)
        super().__init__(
            f"The project has no secret {self.listed}, which the run's env or registry_auth refers to.",
            hint=f"Set it with `dstack secret set {self.first} <value>` and apply the run again.",
        )


def context_of(project_id: str, name: str) -> str:
    return f"secret/{project_id}/{name}"


def opened(seal: Sealer, secret: Secret) -> str:
    return seal.open(secret.sealed, context=context_of(secret.project_id, secret.name))


def filled(
    store: Store, seal: Sealer, project_id: str, places: Iterable[Mapping[str, Any] | None]
) -> list[dict[str, Any] | None]:
    """The places (an environment, a login) with their current secrets. Raises MissingSecrets."""
    given = list(places)
    texts = [text for place in given if place for text in place.values() if isinstance(text, str)]
    names = sorted({name for text in texts for name in secrets_in(text)})
    found = nouns.find_many(store, Secret, [keys.secret(project_id, name) for name in names]) if names else []
    missing = [name for name, secret in zip(names, found, strict=True) if secret is None]
    if missing:
        raise MissingSecrets(missing)
    values = {secret.name: opened(seal, secret) for secret in found if secret is not None}
    return [None if place is None else _filled(place, values) for place in given]


def registry_login(seal: Sealer, run_id: str, stored: Mapping[str, Any]) -> dict[str, Any]:
    """A job's `registry_auth` as it is stored, opened; references to secrets are still in it."""
    return sealed_specs.opened(seal, RegistryAuth, dict(stored), sealed_specs.of_run(run_id))


def _filled(place: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    return {name: fill(text, {"secrets": values}) if isinstance(text, str) else text for name, text in place.items()}
