"""`dstack secret`: values that runs take by `${{ secrets.NAME }}`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from chalicelib.errors import NotFound
from cli.connection import calls, console
from cli.connection.session import Session, completer, open_session
from cli.screen.parameters import JsonOption, ProjectOption, WebOption, YesOption, command, new_group
from cli.screen.render import Table, as_json

if TYPE_CHECKING:
    from chalicelib import contract

HIDDEN = "******"

app = new_group("Manage secrets for runs.", invoke_without_command=True)
SecretArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The secret's name.", autocompletion=completer("secret"))
]


@app.callback()
def secret(ctx: typer.Context, project: ProjectOption = None, web: WebOption = False) -> None:
    """Manage secrets for runs."""
    if ctx.invoked_subcommand is None:
        _list(open_session(ctx, project), json_wanted=False, web=web)


@command(app, "list", "dstack secret list", "dstack secret list --json")
def list_secrets(
    ctx: typer.Context, project: ProjectOption = None, json_wanted: JsonOption = False, web: WebOption = False
) -> None:
    """List the names of secrets; values are not shown."""
    _list(open_session(ctx, project), json_wanted, web=web)


def _list(session: Session, json_wanted: bool, *, web: bool) -> None:
    if web:
        console.show(session.terminal, session.client, "settings", "secrets")
        return
    found = calls.secrets_list(session.client)
    session.cache_names("secret", [one["name"] for one in found])
    if json_wanted:
        shown: contract.SecretList = {"shape": 1, "project": session.project, "secrets": found}
        session.terminal.print(as_json(shown))
        return
    table = Table(("NAME", "VALUE"))
    for one in found:
        table.add(one["name"], HIDDEN)
    session.show(table)


@command(app, "get", "dstack secret get hub_token", "dstack secret get hub_token --json")
def get(
    ctx: typer.Context, name: SecretArgument, project: ProjectOption = None, json_wanted: JsonOption = False
) -> None:
    """Show one secret with its value."""
    session = open_session(ctx, project)
    found = get_secret(session, name)
    if json_wanted:
        shown: contract.SecretGet = {"shape": 1, **found}
        session.terminal.print(as_json(shown))
        return
    table = Table(("NAME", "VALUE"))
    table.add(found["name"], str(found["value"]))
    session.show(table)


@command(app, "set", "dstack secret set hub_token hf_1a2b", "dstack secret set deploy_key - < key.pem")
def set_secret(
    ctx: typer.Context,
    name: SecretArgument,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Its value; `-` reads it from standard input.")],
    project: ProjectOption = None,
) -> None:
    """Add a secret, or change it.

    A value on the command line stays in the shell's history; `-` avoids that. No --json: it prints one line.
    """
    session = open_session(ctx, project)
    text = sys.stdin.read().removesuffix("\n") if value == "-" else value
    calls.secrets_create_or_update(session.client, {"name": name, "value": text})
    session.terminal.print(f"Secret {name} is set. Runs refer to it as ${{{{ secrets.{name} }}}}.")


@command(app, "delete", "dstack secret delete hub_token", "dstack secret delete hub_token -y")
def delete(ctx: typer.Context, name: SecretArgument, project: ProjectOption = None, yes: YesOption = False) -> None:
    """Delete a secret.

    No --json: it prints one line.
    """
    session = open_session(ctx, project)
    get_secret(session, name)
    if not yes and not session.terminal.confirm(f"Delete the value of secret {name} for good?"):
        session.terminal.print("Nothing was deleted.")
        return
    calls.secrets_delete(session.client, {"secrets_names": [name]})
    session.terminal.print(f"Secret {name} is deleted.")


def get_secret(session: Session, name: str) -> contract.Secret:
    try:
        found = calls.secrets_get(session.client, {"name": name})
    except NotFound:
        raise NotFound(
            f"There is no secret {name} in project {session.project}.", hint="See them with `dstack secret`."
        ) from None
    return found
