"""The message that a server prints at start, and the entry that it adds to the client's configuration.

The entry belongs to the user: one for another server is overwritten only if the user asks for it, because its token
could be lost for good.
"""

from __future__ import annotations

from pathlib import Path

from chalicelib.domain.instants import iso
from chalicelib.domain.restorations import Restoration
from chalicelib.domain.tenants import hash_token
from cli.connection.config import ProjectEntry, default_of, load_projects, save_projects, with_project

NAME = "main"


def restored_lines(mark: Restoration | None, looking: bool) -> list[str]:
    """What a server says that was restored from a backup, and only looks."""
    if mark is None or not looking:
        return []
    return [
        f"This server was restored as it was at {iso(mark.as_of)[:19]}Z, and only looks until "
        f"{iso(mark.looks_until)[:19]}Z: it ends no machine and no job, and starts none",
        "What it meets: dstack server restored. To let it act before then: dstack server restored --go-on",
    ]


def startup_lines(path: Path, url: str, token: str | None, admin_hash: str, enter: bool | None = None) -> list[str]:
    """The lines to print. `token`: only if it is new; `admin_hash` identifies this server's entry.

    `enter`: True writes the entry even over another server's, False doesn't write it, None writes it if none is lost.
    """
    entries = load_projects(path)
    existing = next((entry for entry in entries if entry.name == NAME), None)
    lines = [f"The server is running at {url}"]
    if token is not None:
        lines.append(f"The admin token is {token}")
    elif existing is not None and hash_token(existing.token) == admin_hash:
        token = existing.token
    if token is None:
        return [
            *lines,
            "The admin token was shown at the first start; to replace it, set another in DSTACK_SERVER_ADMIN_TOKEN",
        ]
    command = f"dstack project add --name {NAME} --url {url} --token {token}"
    if enter is False:
        return [*lines, f"{path} is unchanged. To add the project `{NAME}` to it:\n  {command}"]
    if existing is not None and hash_token(existing.token) != admin_hash and not enter:
        return [*lines, f"{path} has another project `{NAME}`, at {existing.url}. To replace it:\n  {command}"]
    if existing is None or (existing.url, existing.token) != (url, token):
        entry = ProjectEntry(NAME, url, token, default=bool(existing and existing.default))
        try:
            save_projects(path, with_project(entries, entry))
        except OSError as error:  # of a full disk, or a home that isn't ours: no reason not to serve
            return [*lines, f"{path} can't be written ({error.strerror}). To add the project `{NAME}`:\n  {command}"]
    default = default_of(load_projects(path))
    if default is not None and default.name != NAME:
        return [*lines, f"Project `{NAME}` is in {path}. To make it the default: dstack project set-default {NAME}"]
    return [*lines, f"Project `{NAME}` is the default in {path}"]
