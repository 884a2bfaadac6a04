"""Applies `server/config.yml` at start: creates projects, sets keys and permissions, and refuses what isn't supported.

Refusals come first, by name and with the position in the file, so that a server never runs with half of its file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from chalicelib.configuration.server import ServerFile
from chalicelib.configuration.server_spec import AESKey, ServerConfig
from chalicelib.domain import keys
from chalicelib.domain.tenants import User
from chalicelib.errors import Problem
from chalicelib.store import nouns
from chalicelib.usecases.context import Plane
from chalicelib.usecases.projects import create_project


def refusals(file: ServerFile, backends: Collection[str], simulated: str | None = None) -> tuple[Problem, ...]:
    """Settings in the file that this server doesn't support. `backends`: the types it can create from settings.
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
    """The installation's keys: the first seals, all of them open. Its own is always among them."""
    declared = config.encryption.keys if config.encryption else ()
    found = [key.raw if isinstance(key, AESKey) else own for key in declared]
    return tuple(dict.fromkeys([*found, own]))


def ensure_projects(plane: Plane, admin: User, config: ServerConfig) -> None:
    """Creates missing projects. Every start may run this."""
    for project in config.projects:
        if nouns.find_target(plane.store, keys.project_name(project.name)) is None:
            create_project(plane, admin, project.name)
