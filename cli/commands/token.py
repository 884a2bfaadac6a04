"""`dstack token`: tokens for programs, which may do less than you and expire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from cli.connection import calls, console
from cli.connection.session import Session, completer, open_session
from cli.screen.parameters import JsonOption, ProjectOption, WebOption, YesOption, command, new_group
from cli.screen.render import as_json
from cli.screen.since import seconds_of
from cli.tables.cells import local_time
from cli.tables.people import tokens_table

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies

WHAT = "Manage access tokens: for programs, with less than your rights, until they expire."
app = new_group(WHAT, invoke_without_command=True)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The token's name.", autocompletion=completer("token"))
]
UserOption = Annotated[
    str | None,
    typer.Option("--user", metavar="USER", help="Another user's; for global admins.", autocompletion=completer("user")),
]


@app.callback(help=WHAT)
def token(ctx: typer.Context, project: ProjectOption = None, web: WebOption = False) -> None:
    if ctx.invoked_subcommand is None:
        _list(open_session(ctx, project), None, json_wanted=False, web=web)


@command(
    app,
    "create",
    "dstack token create ci --verb run --for main",
    "dstack token create nightly --verb run --verb fleets --expires 7d",
    "dstack token create agent --verb run --dollars-a-day 5",
)
def create(
    ctx: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")],
    verbs: Annotated[
        list[str] | None,
        typer.Option(
            "--verb",
            metavar="VERB",
            help="What it may do: read (part of every token), run, fleets, project or server. Repeat it for several.",
        ),
    ] = None,
    projects: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            metavar="PROJECT",
            help="A project that it is for; default all of yours. Repeat it for several.",
            autocompletion=completer("project"),
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="DURATION", help="How long it is valid; default 30d, at most 365d."),
    ] = None,
    dollars: Annotated[
        float | None,
        typer.Option(
            "--dollars-a-day",
            metavar="DOLLARS",
            min=0.01,
            help="What its runs may cost a day; then those without a place wait for the next day (00:00 UTC).",
        ),
    ] = None,
    project: ProjectOption = None,
    json_wanted: JsonOption = False,
) -> None:
    """Create an access token and print it, which nobody can see again.

    It never may more than you: if you lose a right, so do your tokens. If you signed on with an account, it ends with
    that sign-on at the latest.
    """
    session = open_session(ctx, project)
    body: bodies.CreateAccessTokenBody = {
        "name": name,
        "verbs": cast("list[contract.Verb]", verbs or ["read"]),  # the server refuses others by name
        "projects": projects or [],
        "expires_in": None if expires is None else seconds_of(expires, "--expires"),
    }
    if dollars is not None:
        body["dollars_a_day"] = dollars
    answer = calls.users_access_tokens_create(session.client, body)
    if json_wanted:
        created = cast("contract.AccessToken", {key: value for key, value in answer.items() if key != "token"})
        shown: contract.TokenCreate = {"shape": 1, "access_token": created, "token": answer["token"]}
        session.terminal.print(as_json(shown))
        return
    session.terminal.print(answer["token"])
    what, where = ", ".join(answer["verbs"]), ", ".join(answer["projects"]) or "all your projects"
    until = local_time(answer["expires_at"])
    limit = "" if dollars is None else f", for ${dollars:.2f} a day"
    session.terminal.warn(f"{name} may {what} in {where}{limit}, until {until}. It is shown only this once.")


@command(app, "list", "dstack token list", "dstack token list --user ann --json")
def list_tokens(
    ctx: typer.Context,
    *,
    user: UserOption = None,
    project: ProjectOption = None,
    json_wanted: JsonOption = False,
    web: WebOption = False,
) -> None:
    """List your access tokens that are valid, without their text."""
    _list(open_session(ctx, project), user, json_wanted=json_wanted, web=web)


def _list(session: Session, user: str | None, *, json_wanted: bool, web: bool) -> None:
    if web:
        console.show(session.terminal, session.client, "account")
        return
    found = calls.users_access_tokens_list(session.client, {"username": user})
    if user is None:
        session.cache_names("token", [one["name"] for one in found])
    if json_wanted:
        shown: contract.TokenList = {"shape": 1, "access_tokens": found}
        session.terminal.print(as_json(shown))
        return
    session.show(tokens_table(found, session.terminal.now()))


@command(app, "revoke", "dstack token revoke ci", "dstack token revoke ci --user ann -y")
def revoke(
    ctx: typer.Context,
    *,
    name: NameArgument,
    user: UserOption = None,
    project: ProjectOption = None,
    yes: YesOption = False,
) -> None:
    """Revoke an access token: it is refused from now on, and what was opened with it is cut off.

    No --json: it prints one line.
    """
    session = open_session(ctx, project)
    whose = f"{name} of {user}" if user else name
    if not yes and not session.terminal.confirm(f"Revoke the access token {whose}? It stops working at once."):
        session.terminal.print("Nothing was changed.")
        return
    calls.users_access_tokens_revoke(session.client, {"name": name, "username": user})
    session.terminal.print(f"The access token {whose} is revoked.")
