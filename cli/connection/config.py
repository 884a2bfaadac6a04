"""`~/.dstack/config.yml`, with the projects that the user has added, and the server, token and project of a command.

The file is shared with the genuine client, so unknown keys are preserved. It contains tokens: it is written to a
temporary file with mode 0600 and renamed, so that a crash leaves the old file and nobody else can read the new one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chalicelib.errors import Invalid, Refused


@dataclass(frozen=True)
class ProjectEntry:
    name: str
    url: str
    token: str
    default: bool = False


@dataclass(frozen=True)
class Endpoint:
    """The target of a command's requests."""

    url: str
    token: str
    project: str


def config_path(home: Path) -> Path:
    return home / ".dstack" / "config.yml"


def load_projects(path: Path) -> list[ProjectEntry]:
    """The projects in the file; none if there is no file. An unreadable file is an error, never an empty list."""
    return [_entry(path, found) for found in _document(path).get("projects") or []]


def default_of(projects: list[ProjectEntry]) -> ProjectEntry | None:
    return next((p for p in projects if p.default), None)


def save_projects(path: Path, projects: list[ProjectEntry]) -> None:
    """Writes the projects, and preserves other keys of the file and of its entries."""
    import yaml

    document = _document(path)
    before = {found["name"]: found for found in document.get("projects") or []}
    document["projects"] = [
        {**before.get(p.name, {}), "name": p.name, "url": p.url, "token": p.token, "default": p.default}
        for p in projects
    ]
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = path.resolve()  # a config.yml that is a symlink stays one
    handle, beside = tempfile.mkstemp(prefix=".config-", suffix=".yml", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            yaml.safe_dump(document, file, sort_keys=False, allow_unicode=True)
            file.flush()
            os.fsync(file.fileno())
        Path(beside).chmod(0o600)
        Path(beside).replace(target)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def with_project(projects: list[ProjectEntry], added: ProjectEntry) -> list[ProjectEntry]:
    """The projects with `added`, by name. The first project, or one marked as default, becomes the only default."""
    rest_of_file = [p for p in projects if p.name != added.name]
    previous = next((p for p in projects if p.name == added.name), None)
    if added.default or (previous and previous.default) or default_of(rest_of_file) is None:
        rest_of_file = [ProjectEntry(p.name, p.url, p.token) for p in rest_of_file]
        added = ProjectEntry(added.name, added.url, added.token, default=True)
    place = projects.index(previous) if previous else len(rest_of_file)
    return [*rest_of_file[:place], added, *rest_of_file[place:]]


def set_default_project(path: Path, name: str, url: str, token: str) -> None:
    """Adds one project and makes it the default, as a server does for its own user at its first start."""
    save_projects(path, with_project(load_projects(path), ProjectEntry(name, url.rstrip("/"), token, default=True)))


def resolve_endpoint(env: Mapping[str, str], home: Path, project: str | None) -> Endpoint:
    """The server, token and project: URL and token of the environment together, else those of the file's entry. A token
    in the environment replaces the entry's; a URL there without a token is used only if no entry is found."""
    url, token = env.get("DSTACK_SERVER_URL", "").rstrip("/"), env.get("DSTACK_TOKEN", "")
    wanted = project or env.get("DSTACK_PROJECT") or None
    if url and token:
        if not wanted:
            raise Refused(
                "DSTACK_SERVER_URL and DSTACK_TOKEN are set, but no project is named.",
                hint="Add --project NAME or set DSTACK_PROJECT.",
            )
        return Endpoint(url, token, wanted)
    path = config_path(home)
    projects = load_projects(path)
    entry = next((p for p in projects if p.name == wanted), None) if wanted else default_of(projects)
    if entry:
        return Endpoint(entry.url.rstrip("/"), token or entry.token, entry.name)
    raise _no_target(path, wanted, projects, url)


def _no_target(path: Path, wanted: str | None, projects: list[ProjectEntry], url: str) -> Refused:
    if url:
        return Refused(f"DSTACK_SERVER_URL is {url}, but no token for it is known.", hint="Set DSTACK_TOKEN as well.")
    if not projects:
        return Refused(
            "No project is set up yet.",
            hint="Start a server here with `dstack server`, or add a project of a running server: "
            "`dstack project add --name main --url URL --token TOKEN`.",
        )
    names = ", ".join(p.name for p in projects)
    if wanted:
        return Refused(f"There is no project {wanted} in {path}.", hint=f"Projects here: {names}.")
    return Refused(
        "None of your projects is the default.", hint=f"Choose one with `dstack project set-default NAME`: {names}."
    )


def _document(path: Path) -> dict[str, Any]:
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path} can't be read: {error}.", hint="Fix its permissions or its text.") from error
    try:
        document = yaml.load(text, yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise Invalid(f"{path} is not YAML: {' '.join(str(error).split())}.", hint="Fix it or move it away.") from error
    if document is None:
        return {}
    if not isinstance(document, dict) or not isinstance(document.get("projects") or [], list):
        raise Invalid(f"{path} should hold a list called `projects`.", hint="Fix it or move it away.")
    return document


def _entry(path: Path, found: object) -> ProjectEntry:
    if not isinstance(found, dict) or any(not isinstance(found.get(key), str) for key in ("name", "url", "token")):
        raise Invalid(
            f"A project in {path} lacks its name, url or token.",
            hint="Fix the entry, or remove it and run `dstack project add`.",
        )
    return ProjectEntry(found["name"], found["url"], found["token"], bool(found.get("default")))
