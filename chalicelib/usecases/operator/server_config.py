"""Applies `server/config.yml`: creates projects, configures their backends, sets keys and permissions, and refuses what
isn't supported.

Refusals come first, by name and with the position in the file, so that a server never runs with half of its file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

from chalicelib.configuration.server import ServerFile
from chalicelib.configuration.server_spec import AESKey, ServerConfig
from chalicelib.domain import keys
from chalicelib.domain.backends import BackendRoster, Configured
from chalicelib.domain.specs.reading import Spec
from chalicelib.domain.tenants import Project, User
from chalicelib.errors import Problem, Refused
from chalicelib.store import nouns
from chalicelib.usecases.operator import backends
from chalicelib.usecases.operator.backends import BackendPorts
from chalicelib.usecases.people.projects import create_project
from chalicelib.usecases.ports import ChangePorts, RecordPorts, SealedPorts


class ServerConfigPorts(BackendPorts, ChangePorts, Protocol):
    """The ports for applying a configuration file."""


def refusals(file: ServerFile, backends: Collection[str], simulated: str | None = None) -> tuple[Problem, ...]:
    """Settings in the file that this server doesn't support. `backends`: the types that it can create from settings.
    `simulated`: the one that its simulated cloud stands in for."""
    return tuple(_refusals(file, backends, simulated))


def _refusals(file: ServerFile, backends: Collection[str], simulated: str | None) -> Iterator[Problem]:
    listed = f"; available: {', '.join(sorted(backends))}" if backends else ""
    hint = f"remove it{listed}; jobs can run on this machine, and --fake-cloud adds a simulated cloud"
    for place, project in enumerate(file.config.projects):
        for number, backend in enumerate(project.backends or ()):
            path = ("projects", place, "backends", number, "type")
            if backend.type == simulated:
                message = f"the simulated cloud stands in for `{simulated}`, so this one would be a second"
                yield file.problem(path, message, "remove it, or set another --fake-cloud-name", "unsupported")
            elif backend.type not in backends:
                yield file.problem(path, f"the backend `{backend.type}` isn't built yet", hint, "unsupported")
    for number, plugin in enumerate(file.config.plugins or ()):
        message = f"the plugin `{plugin[:60]}` can't be loaded: plugins aren't supported"
        yield file.problem(("plugins", number), message, "remove it", "unsupported")


def sealing_keys(config: ServerConfig, own: bytes) -> tuple[bytes, ...]:
    """The installation's keys: the first seals, all of them open. The server's own key is always one of them."""
    declared = config.encryption.keys if config.encryption else ()
    found = [key.raw if isinstance(key, AESKey) else own for key in declared]
    return tuple(dict.fromkeys([*found, own]))


def ensure_projects(plane: ChangePorts, admin: User, config: ServerConfig) -> None:
    """Creates missing projects. Every start may run this."""
    for project in config.projects:
        if nouns.find_target(plane.store, keys.project_name(project.name)) is None:
            create_project(plane, admin, project.name)


def ensure_backends(plane: BackendPorts, config: ServerConfig) -> tuple[str, ...]:
    """Configure the file's backends, and delete those that it no longer has. Returns what couldn't be done, and why."""
    return tuple(_ensure_backends(plane, config))


def _ensure_backends(plane: BackendPorts, config: ServerConfig) -> Iterator[str]:
    wanted: set[tuple[str, str]] = set()
    for declared in config.projects:
        found = nouns.find_target(plane.store, keys.project_name(declared.name))
        project = None if found is None else nouns.find(plane.store, Project, keys.project(found[0]))
        if project is None or project.deleted:
            continue
        for backend in declared.backends or ():
            wanted.add((project.id, backend.type))
            yield from _ensure(plane, project, backend)
    for known in _configured(plane):
        if known.from_file and (known.project_id, known.type) not in wanted:
            yield from _leave(plane, known)


def _ensure(plane: BackendPorts, project: Project, config: Spec) -> Iterator[str]:
    type = backends.type_of(config)
    known = nouns.find(plane.store, Configured, keys.backend(project.id, type))
    if known is not None and not known.from_file:
        yield (
            f"the backend {type} of project {project.name} was configured over the API, so the file's is left out "
            f"until that one is deleted: dstack backend delete {type} --project {project.name}"
        )
    elif known is None or not _same(plane, known, config):
        backends.store(plane, project, config, known, from_file=True)


def _same(plane: SealedPorts, known: Configured, config: Spec) -> bool:
    try:
        return backends.opened(plane, known) == backends.plain(config)
    except Refused:
        return False  # it was sealed with a key that is gone


def _leave(plane: BackendPorts, known: Configured) -> Iterator[str]:
    if used := backends.uses(plane, known.project_id, known.type):
        yield f"the backend {known.type} isn't in the file any more; it stays until these are gone: {', '.join(used)}"
    else:
        backends.forget(plane, [known])


def _configured(plane: RecordPorts) -> list[Configured]:
    roster = nouns.find(plane.store, BackendRoster, keys.ROSTER)
    if roster is None or not roster.rows:
        return []
    found = nouns.find_many(plane.store, Configured, [keys.backend(*row) for row in roster.rows])
    return [one for one in found if one is not None]
