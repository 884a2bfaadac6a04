"""`dstack scim`: the tokens with which a company's directory makes users here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from cli.connection import calls
from cli.connection.session import open_session
from cli.screen.parameters import JsonOption, ProjectOption, YesOption, command, new_group
from cli.screen.render import as_json
from cli.tables.people import scim_tokens_table

if TYPE_CHECKING:
    from chalicelib import contract

app = new_group("Let a company's directory make users and groups here, by SCIM.")
tokens = new_group("Manage the tokens with which directories call. For global admins.")
app.add_typer(tokens, name="token")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The token's name.")]


@command(tokens, "create", "dstack scim token create okta", "dstack scim token create entra --json")
def create(
    ctx: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")],
    project: ProjectOption = None,
    json_wanted: JsonOption = False,
) -> None:
    """Create a token for a directory and print it, which nobody can see again.

    It is good for `/scim` alone, and lasts until it is revoked. See docs/operate/scim.md.
    """
    session = open_session(ctx, project)
    answer = calls.scim_tokens_create(session.client, {"name": name})
    if json_wanted:
        created = cast("contract.ScimToken", {key: value for key, value in answer.items() if key != "token"})
        shown: contract.ScimTokenCreate = {"shape": 1, "scim_token": created, "token": answer["token"]}
        session.terminal.print(as_json(shown))
        return
    session.terminal.print(answer["token"])
    session.terminal.warn(f"{name} may make, change and delete users and groups. It is shown only this once.")


@command(tokens, "list", "dstack scim token list", "dstack scim token list --json")
def list_tokens(ctx: typer.Context, *, project: ProjectOption = None, json_wanted: JsonOption = False) -> None:
    """List the tokens of directories, without their text."""
    session = open_session(ctx, project)
    found = calls.scim_tokens_list(session.client)
    if json_wanted:
        shown: contract.ScimTokenList = {"shape": 1, "scim_tokens": found}
        session.terminal.print(as_json(shown))
        return
    session.show(scim_tokens_table(found, session.terminal.now()))


@command(tokens, "revoke", "dstack scim token revoke okta", "dstack scim token revoke okta -y")
def revoke(ctx: typer.Context, *, name: NameArgument, project: ProjectOption = None, yes: YesOption = False) -> None:
    """Revoke a directory's token: it is refused from now on. The users that it made stay.

    No --json: it prints one line.
    """
    session = open_session(ctx, project)
    if not yes and not session.terminal.confirm(f"Revoke the SCIM token {name}? Its directory is refused at once."):
        session.terminal.print("Nothing was changed.")
        return
    calls.scim_tokens_revoke(session.client, {"name": name})
    session.terminal.print(f"The SCIM token {name} is revoked.")
