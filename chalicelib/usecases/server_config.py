"""What `server/config.yml` does at a start: projects are made, keys and permissions set; what can't be done is refused.

Refusing comes first and by name, with the place in the file, so that a server never runs on half of its file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from chalicelib.configuration.server import ServerFile
from chalicelib.domain.specs.server import AESKey, ServerConfig
from chalicelib.domain.tenants import User
from chalicelib.errors import Problem
from chalicelib.store import keys, nouns
from chalicelib.usecases.context import Plane
from chalicelib.usecases.projects import create_project


def refusals(file: ServerFile, backends: Collection[str]) -> tuple[Problem, ...]:
    """What the file asks for and this server can't do. `backends`: the types it can make from their settings."""
    return tuple(_refusals(file, backends))


def _refusals(file: ServerFile, backends: Collection[str]) -> Iterator[Problem]:
    listed = f"; there is {', '.join(sorted(backends))}" if backends else ""
    hint = f"remove it{listed}; jobs can run on this machine, and --fake-cloud adds a simulated cloud"
    for place, project in enumerate(file.config.projects):
        for number, backend in enumerate(project.backends or ()):
            if backend.type not in backends:
                path = ("projects", place, "backends", number, "type")
                yield file.problem(path, f"the backend `{backend.type}` isn't built yet", hint, "unsupported")
    for number, plugin in enumerate(file.config.plugins or ()):
        message = f"the plugin `{plugin[:60]}` can't be loaded: there are no plugins here"
        yield file.problem(("plugins", number), message, "remove it", "unsupported")


def sealing_keys(config: ServerConfig, own: bytes) -> tuple[bytes, ...]:
    """The keys of the installation: the first seals, all of them open. Its own is always among them."""
    declared = config.encryption.keys if config.encryption else ()
    found = [key.raw if isinstance(key, AESKey) else own for key in declared]
    return tuple(dict.fromkeys([*found, own]))


def ensure_projects(plane: Plane, admin: User, config: ServerConfig) -> None:
    """Make the projects that aren't there. Every start may run it."""
    for project in config.projects:
        if nouns.find_target(plane.store, keys.project_name(project.name)) is None:
            create_project(plane, admin, project.name)
