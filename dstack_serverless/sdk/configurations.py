"""What is applied: a file, or what one would hold, as a dict or as a pydantic model.

A file is read, completed and packed as by the command line. What a program has made is sent as it is, and the server
checks it; unless it names something that only this machine has, which is then packed in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Protocol

from chalicelib.errors import Invalid
from dstack_serverless.sdk.core import Core, not_json
from dstack_serverless.sdk.flow import Flow, Work

if TYPE_CHECKING:
    from cli.applying.runs import LoadedConfiguration
    from cli.connection.session import Session

OF_THIS_MACHINE = ("files", "repos", "registry_auth", "probes")  # keys whose values may be filled in, or packed, here


WITH_KEYS = ("ssh_config", "certificate")  # of fleets and gateways: they may name files with keys


class Model(Protocol):
    """A pydantic model."""

    def model_dump(self, *, mode: str, exclude_unset: bool) -> dict[str, Any]: ...


Configuration = str | PathLike[str] | Mapping[str, Any] | Model


def run_spec_of(core: Core, configuration: Configuration, profile: str | None) -> Flow[dict[str, Any]]:
    """The spec of a run, with everything uploaded that it needs."""
    document = document_of(configuration)
    if document is None or profile is not None or _is_of_this_machine(document):
        found: dict[str, Any] = yield Work(lambda: _prepared(core, configuration, document, profile))
        return found
    return {"repo_id": "none", "repo_data": {"repo_type": "virtual"}, "configuration": document}


def resource_of(core: Core, configuration: Configuration) -> Flow[dict[str, Any]]:
    """What a fleet, a volume or a gateway is planned with: `configuration`, and of a file also its path and profile."""
    document = document_of(configuration)
    if document is None or any(document.get(key) for key in WITH_KEYS):
        found: dict[str, Any] = yield Work(lambda: _completed(core, configuration, document))
        return found
    return {"configuration": document}


def document_of(configuration: Configuration) -> dict[str, Any] | None:
    """What a program has made; None for the path of a file."""
    if isinstance(configuration, str | PathLike):
        return None
    if isinstance(configuration, Mapping):
        return dict(configuration)
    if not hasattr(configuration, "model_dump"):
        raise Invalid(f"A configuration is the path of a file, a dict or a pydantic model, not {configuration!r}.")
    made = configuration.model_dump(mode="json", exclude_unset=True)
    kind = getattr(configuration, "type", None)  # which a model of one kind needn't be given
    return made if kind is None else {"type": kind, **made}


def _is_of_this_machine(document: Mapping[str, Any]) -> bool:
    if any(document.get(key) for key in OF_THIS_MACHINE):
        return True
    env = document.get("env")
    if isinstance(env, Mapping):
        return None in env.values()
    return any("=" not in str(each) for each in env or ())  # its value is this process's


def _prepared(
    core: Core, configuration: Configuration, document: dict[str, Any] | None, profile: str | None
) -> dict[str, Any]:
    from cli.applying.runs import ApplyOptions, Submission

    session, definition = _definition(core, configuration, document, profile)
    submission = Submission(session, definition, ApplyOptions())
    spec = submission.prepared()
    submission.repo.upload(session)
    return spec


def _completed(core: Core, configuration: Configuration, document: dict[str, Any] | None) -> dict[str, Any]:
    from cli.applying.certificates import with_certificate
    from cli.applying.fleets import with_ssh_keys

    session, definition = _definition(core, configuration, document, None)
    folder = session.terminal.cwd
    found = with_certificate(with_ssh_keys(definition.configuration, folder, core.home), folder, core.home)
    if document is not None:
        return {"configuration": found}
    return {"configuration": found, "configuration_path": definition.path, "profile": definition.profile}


def _definition(
    core: Core, configuration: Configuration, document: dict[str, Any] | None, profile: str | None
) -> tuple[Session, LoadedConfiguration]:
    from cli.applying.definition import load_definition

    session = session_of(core)
    if document is None:
        assert isinstance(configuration, str | PathLike), "else it is a document"
        return session, load_definition(session.terminal, fspath(configuration), profile=profile)
    try:
        text = json.dumps(document).encode()
    except TypeError as error:
        raise not_json(error) from None
    try:
        return session, load_definition(session.terminal, None, profile=profile, text=text)
    except Invalid as error:  # there are no lines to name
        raise Invalid([replace(each, file="", line=0, column=0) for each in error.problems], hint=error.hint) from None


def session_of(core: Core) -> Session:
    """The command line's connection, for what it does already: packing, uploading, SSH."""
    from cli.connection.client import Client
    from cli.connection.session import Session
    from dstack_serverless.sdk.quiet import QuietTerminal

    terminal = QuietTerminal(env=core.env, home=core.home, watched=False, ssh=core.ssh)
    return Session(terminal, Client(core.url, core.token, core.in_project(), via=core.dial))
