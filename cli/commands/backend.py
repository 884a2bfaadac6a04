"""`dstack backend`: the clouds that a project can use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from chalicelib.errors import DstackError, Invalid, NotFound, Refused
from cli.connection import calls, console
from cli.connection.session import Session, completer, open_session
from cli.screen.parameters import JsonOption, ProjectOption, WebOption, YesOption, command, new_group
from cli.screen.render import as_json
from cli.tables.backends import backends_table

if TYPE_CHECKING:
    from chalicelib import contract

app = new_group("Manage backends: the clouds that a project can use.", invoke_without_command=True)
NameArgument = Annotated[
    str, typer.Argument(metavar="BACKEND", help="Its type, for example `aws`.", autocompletion=completer("backend"))
]


@app.callback()
def backend(ctx: typer.Context, project: ProjectOption = None, web: WebOption = False) -> None:
    """Manage backends: the clouds that a project can use."""
    if ctx.invoked_subcommand is None:
        _list(open_session(ctx, project), json_wanted=False, web=web)


@command(app, "list", "dstack backend list", "dstack backend list --json")
def list_backends(
    ctx: typer.Context, project: ProjectOption = None, json_wanted: JsonOption = False, web: WebOption = False
) -> None:
    """List backends, and how old their offers are. Credentials are never shown."""
    _list(open_session(ctx, project), json_wanted, web=web)


def _list(session: Session, json_wanted: bool, *, web: bool) -> None:
    if web:
        console.show(session.terminal, session.client, "settings", "backends")
        return
    found = _known(session)
    if json_wanted:
        shown: contract.BackendList = {"shape": 1, "project": session.project, "backends": found}
        session.terminal.print(as_json(shown))
        return
    session.show(backends_table(found, session.terminal.now()))
    if not found:
        session.terminal.warn("No backends yet. Add one with `dstack backend add`.")


@command(
    app,
    "add",
    "dstack backend add aws --access-key AKIAIOSFODNN7EXAMPLE",
    "dstack backend add aws --access-key AKIAIOSFODNN7EXAMPLE --secret-key - < secret.txt",
    "dstack backend add -f backend.yml",
)
def add(
    ctx: typer.Context,
    *,
    name: Annotated[str | None, typer.Argument(metavar="BACKEND", help="Its type, unless FILE names it.")] = None,
    file: Annotated[
        str | None, typer.Option("-f", "--file", metavar="FILE", help="A file with one entry of `backends`.")
    ] = None,
    access_key: Annotated[str | None, typer.Option("--access-key", metavar="ID", help="The access key's id.")] = None,
    secret_key: Annotated[
        str | None,
        typer.Option("--secret-key", metavar="KEY", help="The access key; `-` reads it from standard input."),
    ] = None,
    own: Annotated[
        bool, typer.Option("--default-creds", help="Use the server's own credentials; for global admins.")
    ] = False,
    region: Annotated[
        list[str] | None, typer.Option("-r", "--region", metavar="REGION", help="A region to use; repeatable.")
    ] = None,
    project: ProjectOption = None,
    yes: YesOption = False,
) -> None:
    """Add a backend, or change it.

    The provider is asked first, and the secret key without showing it. A key on the command line stays in the shell's
    history. What isn't given stays as it is when a backend is changed; its machines stay too. No --json: it prints one
    line.
    """
    session = open_session(ctx, project)
    if (file is None) == (name is None):
        raise typer.BadParameter("Give either a backend or -f FILE.", ctx=ctx)
    if file is not None and (access_key or secret_key or own or region):
        raise typer.BadParameter("-f FILE has all settings; leave the other flags out.", ctx=ctx)
    if own and (access_key or secret_key):
        raise typer.BadParameter("--default-creds and keys contradict each other.", ctx=ctx)
    text = None if file is None else _text(session, file)
    kind = name or _type_in(str(text), str(file))
    exists = any(one["name"] == kind for one in _known(session))
    if exists and not yes and not session.terminal.confirm(f"Change the backend {kind} of project {session.project}?"):
        session.terminal.print("Nothing was changed.")
        return
    if text is not None:
        save_text = calls.backends_update_yaml if exists else calls.backends_create_yaml
        save_text(session.client, {"config_yaml": text})
    else:
        body = calls.backends_config_info(session.client, kind) if exists else {"type": kind}
        creds = _creds(session, access_key, secret_key, own)
        if creds is None and not exists:
            _check_not_needed(kind)
        given = {"creds": creds, "regions": region or None}
        save = calls.backends_update if exists else calls.backends_create
        save(session.client, {**body, **{key: value for key, value in given.items() if value}})
    session.terminal.print(f"Backend {kind} is {'changed' if exists else 'added'}.")


def _creds(session: Session, access_key: str | None, secret_key: str | None, own: bool) -> dict[str, str] | None:
    if own:
        return {"type": "default"}
    if access_key is None and secret_key is None:
        return None
    if access_key is None:
        raise Refused("--secret-key needs the key's id, too.", hint="Add --access-key ID.")
    here = session.terminal
    secret = here.hidden("Secret key: ") if secret_key is None else here.secret(secret_key, "--secret-key")
    return {"type": "access_key", "access_key": access_key, "secret_key": secret}


def _check_not_needed(kind: str) -> None:
    """Refuses a type that needs credentials, and names the flags: the server would name the field."""
    from chalicelib.configuration.server_spec import backends_built, config_model

    if kind not in backends_built():
        return
    model = config_model(kind)
    if model is not None and "creds" not in model.model_fields:
        raise Refused(
            f"The backend {kind} has settings that only a file holds.",
            hint="Write them to a file, and add it with `dstack backend add -f FILE`.",
        )
    raise Refused(
        f"The backend {kind} needs credentials.",
        hint="Add --access-key ID, which asks for the secret key, or --default-creds for the server's own.",
    )


def _text(session: Session, file: str) -> str:
    from chalicelib.configuration.parse import decode

    path = session.terminal.cwd / file
    try:
        return decode(path.read_bytes(), file)
    except OSError as error:
        raise Refused(f"{file} can't be read: {error.strerror}.", hint="Correct the path.") from error


def _type_in(text: str, file: str) -> str:
    """The type in a file, which is parsed here so that errors name their place in it."""
    from chalicelib.configuration.server import parse_backend

    try:
        return str(parse_backend(text, filename=file).__dict__["type"])
    except Invalid as error:
        raise Refused(str(error)) from None  # without its lines, which contain secrets


@command(app, "check", "dstack backend check", "dstack backend check aws", "dstack backend check --json")
def check(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="BACKEND", help="Its type; all unless given.", autocompletion=completer("backend")),
    ] = None,
    project: ProjectOption = None,
    json_wanted: JsonOption = False,
) -> None:
    """Ask the providers whether the backends work: the credentials, each permission, each region.

    Machines and whatever else belongs to them are rehearsed, not made. Exits with 1 if a backend doesn't work.
    """
    session = open_session(ctx, project)
    names = [one["name"] for one in _known(session)] if name is None else [name]
    if not names:
        session.terminal.warn("No backends yet. Add one with `dstack backend add`.")
    found: list[contract.CheckedBackend] = []
    for each in names:
        error = _error_of(session, each)
        found.append({"name": each, "works": error is None, "error": error})
        if not json_wanted:
            session.terminal.print(f"{each}: {error or 'works'}")
    if json_wanted:
        shown: contract.BackendCheck = {"shape": 1, "project": session.project, "backends": found}
        session.terminal.print(as_json(shown))
    if not all(one["works"] for one in found):
        raise typer.Exit(1)


def _error_of(session: Session, name: str) -> str | None:
    """What the provider reports as wrong; None if the backend works."""
    try:
        calls.backends_check(session.client, name)
    except NotFound:
        raise
    except DstackError as error:
        return str(error)
    return None


@command(app, "delete", "dstack backend delete aws", "dstack backend delete aws -y")
def delete(ctx: typer.Context, name: NameArgument, project: ProjectOption = None, yes: YesOption = False) -> None:
    """Delete a backend and its credentials. One with machines or volumes is refused.

    No --json: it prints one line.
    """
    session = open_session(ctx, project)
    question = f"Delete the backend {name} of project {session.project}, and its credentials?"
    if not yes and not session.terminal.confirm(question):
        session.terminal.print("Nothing was deleted.")
        return
    calls.backends_delete(session.client, {"backends_names": [name]})
    session.terminal.print(f"Backend {name} is deleted.")


def _known(session: Session) -> list[contract.Backend]:
    found = calls.backends_list(session.client)
    session.cache_names("backend", [one["name"] for one in found])
    return found
