"""Which server, token and project a client has: what is given, then the environment's, then the command line's."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from chalicelib.errors import Refused
from cli.connection.client import Client as CommandLine
from cli.connection.config import Endpoint, config_path, load_projects, resolve_endpoint

URL, TOKEN, PROJECT = "DSTACK_SERVER_URL", "DSTACK_TOKEN", "DSTACK_PROJECT"


def endpoint_of(
    url: str | None, token: str | None, project: str | None, env: Mapping[str, str], home: Path
) -> Endpoint:
    """Raises Refused if something is missing or malformed. A project that isn't named stays empty where it can't be
    found out: some calls need none."""
    found = _endpoint(url, token, project, env, home)
    CommandLine(found.url, found.token)  # refuses what is no address or no token
    address = found.url if "://" in found.url else f"http://{found.url}"
    return Endpoint(address, found.token, found.project)


def certificates(url: str) -> ssl.SSLContext | Literal[False]:
    """The authorities by which a server is known: the system's, as for the command line, or those of `SSL_CERT_FILE`.
    For http none, as reading them would take a while for nothing."""
    return ssl.create_default_context() if urlsplit(url).scheme == "https" else False


def _endpoint(url: str | None, token: str | None, project: str | None, env: Mapping[str, str], home: Path) -> Endpoint:
    token = token or env.get(TOKEN, "")
    project = project or env.get(PROJECT) or None
    given = url or env.get(URL)
    if given and token:
        return Endpoint(given.rstrip("/"), token, project or "")
    if given:
        return _entry_of(given.rstrip("/"), project, home)
    return resolve_endpoint({**env, TOKEN: token}, home, project)


def _entry_of(url: str, project: str | None, home: Path) -> Endpoint:
    """That of the command line's file for this server."""
    entries = [entry for entry in load_projects(config_path(home)) if entry.url.rstrip("/") == url]
    named = [entry for entry in entries if entry.name == project] if project else entries
    chosen = next((entry for entry in named if entry.default), named[0] if named else None)
    if chosen is None and entries:
        names = ", ".join(entry.name for entry in entries)
        raise Refused(
            f"The command line has no project {project} of {url}, only {names}.",
            hint="For another one give its token: Client(token=…), or DSTACK_TOKEN.",
        )
    if chosen is None:
        raise Refused(f"No token for {url} is known.", hint="Give it: Client(token=…), or DSTACK_TOKEN.")
    return Endpoint(url, chosen.token, chosen.name)
