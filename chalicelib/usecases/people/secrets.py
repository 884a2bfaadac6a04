"""Secrets of a project: sealed at rest, shown to users who may manage them, filled in when a task goes to its agent.

A sealed value is bound to its project and name, so a copy in another record can't be opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chalicelib.domain import keys
from chalicelib.domain.events import EventType
from chalicelib.domain.tenants import MAX_SECRET, SECRET_NAME, Project, Secret, User
from chalicelib.engine import job_secrets
from chalicelib.errors import Invalid, NotFound, Problem
from chalicelib.store import nouns
from chalicelib.store.listing import page_after
from chalicelib.store.port import MAX_CHANGES, Change, Delete, Store
from chalicelib.usecases.audit_events import audit_event, secret_target
from chalicelib.usecases.ports import AccountPorts, RecordPorts, SealedPorts

MOST_NAMED = 200  # secrets that one configuration may refer to


def list_secrets(plane: RecordPorts, project: Project, *, after: str = "", limit: int | None = None) -> list[Secret]:
    """The project's secrets in order of names, after the name `after`."""
    found = page_after(plane.store, f"project/{project.id}", "secret/", after=after, limit=limit)
    return [nouns.read(Secret, record) for record in found]


def find(store: Store, project: Project, name: str) -> Secret | None:
    return nouns.find(store, Secret, keys.secret(project.id, name)) if SECRET_NAME.fullmatch(name) else None


def get_secret(plane: SealedPorts, project: Project, name: str) -> tuple[Secret, str]:
    """The secret and its value."""
    secret = find(plane.store, project, name)
    if secret is None:
        raise NotFound(f"There is no secret {name[:80]!r} in project {project.name}.", hint="See `dstack secret list`.")
    return secret, opened(plane, secret)


def set_secret(plane: AccountPorts, project: Project, actor: User, name: str, value: str) -> Secret:
    problems = []
    if not SECRET_NAME.fullmatch(name):
        problems.append(Problem("a name has 1 to 200 letters, digits, - and _", path="name"))
    if len(value) > MAX_SECRET:
        problems.append(
            Problem(f"a value may have at most {MAX_SECRET} characters; this one has {len(value)}", path="value")
        )
    if problems:
        raise Invalid(problems)
    now = plane.clock.now()
    known = nouns.find(plane.store, Secret, keys.secret(project.id, name))
    sealed = plane.seal.seal(value, context=job_secrets.context_of(project.id, name))
    if known is None:
        secret = Secret(id=plane.random_id(), project_id=project.id, name=name, sealed=sealed, updated_at=now)
    else:
        secret = known.with_(sealed=sealed, updated_at=now)
    type = EventType.created if known is None else EventType.changed
    seed = f"{secret.id}/{secret.version}"
    event = audit_event(type, now, secret_target(secret), project_id=project.id, seed=seed, actor=actor)
    plane.store.commit([nouns.put(secret), nouns.put(event)])
    return secret


def delete_secrets(plane: RecordPorts, project: Project, actor: User, names: Sequence[str]) -> None:
    """Deletes all of them or none: a missing name is an error."""
    wanted = list(dict.fromkeys(names))
    if len(wanted) * 2 > MAX_CHANGES:
        raise Invalid(f"{len(wanted)} secrets at once; at most {MAX_CHANGES // 2} can be deleted in one request.")
    found = nouns.find_many(plane.store, Secret, [keys.secret(project.id, name) for name in wanted])
    missing = [name[:80] for name, secret in zip(wanted, found, strict=True) if secret is None]
    if missing:
        raise NotFound(
            f"There is no secret {', '.join(map(repr, missing))} in project {project.name}; none was deleted."
        )
    now = plane.clock.now()
    changes: list[Change] = []
    for secret in found:
        assert secret is not None
        seed = f"{secret.id}/{secret.version}"
        event = audit_event(
            EventType.deleted, now, secret_target(secret), project_id=project.id, seed=seed, actor=actor
        )
        changes += [Delete(nouns.key_of(secret), secret.version), nouns.put(event)]
    if changes:
        plane.store.commit(changes)


def missing(plane: RecordPorts, project: Project, named: Iterable[tuple[str, str]]) -> list[Problem]:
    """Problems of missing secrets. `named`: the paths and names of the secrets that a spec refers to."""
    places = list(named)
    keys_of = {name: keys.secret(project.id, name) for _, name in places}
    if len(keys_of) > MOST_NAMED:
        text = f"more than {MOST_NAMED} secrets are named"
        return [Problem(text, path=places[0][0], hint="put several values into one secret", code="too-large")]
    found = nouns.find_many(plane.store, Secret, list(keys_of.values())) if keys_of else []
    existing = {secret.name for secret in found if secret is not None}
    lacking = [(path, name) for path, name in places if name not in existing]
    known = [secret.name for secret in list_secrets(plane, project)] if lacking else []
    return [_missing(path, name, known) for path, name in lacking]


def _missing(path: str, name: str, known: list[str]) -> Problem:
    from chalicelib.configuration.problems import nearest  # most specs are fine

    near = nearest(name, known)
    hint = f"did you mean `{near}`?" if near else f"set it with `dstack secret set {name} <value>`"
    return Problem(f"the project has no secret `{name[:80]}`", path=path, hint=hint, code="unknown-value")


def opened(plane: SealedPorts, secret: Secret) -> str:
    return job_secrets.opened(plane.seal, secret)
