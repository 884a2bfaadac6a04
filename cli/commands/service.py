"""`dstack service`: how a service does, and tokens for calling it."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.connection import calls
from cli.connection.session import completer, open_session
from cli.screen.parameters import JsonOption, ProjectOption, command, new_group
from cli.screen.render import as_json
from cli.screen.since import seconds_of
from cli.tables.services import groups_table, times_table, traffic_line

app = new_group("Show services, and manage access to them.")


@app.callback()
def service() -> None:
    """Show services, and manage access to them."""


@command(app, "get", "dstack service get chat", "dstack service get chat --json | jq .traffic.first_byte.p95")
def get(
    ctx: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="RUN", help="The run's name.", autocompletion=completer("run"))],
    project: ProjectOption = None,
    json_wanted: JsonOption = False,
) -> None:
    """Show a service's replicas, its requests, and how long its answers take.

    Half of the answers, 95% and 99% of them came within these times in the last minute: the first byte of their bodies,
    and all of them. Requests that waited for a replica are among them.
    """
    session = open_session(ctx, project)
    found = calls.services_get(session.client, {"run_name": name})
    if json_wanted:
        session.terminal.print(as_json(found))
        return
    session.show(groups_table(found))
    session.terminal.print()
    session.terminal.print(traffic_line(found, session.terminal.now()))
    if found["traffic"]["whole"] or found["traffic"]["first_byte"]:
        session.terminal.print()
        session.show(times_table(found["traffic"]))


@command(
    app,
    "token",
    "dstack service token",
    "dstack service token chat --expires-in 15m",
)
def token(
    ctx: typer.Context,
    *,
    name: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="For this service alone.", autocompletion=completer("run")),
    ] = None,
    expires_in: Annotated[
        str, typer.Option("--expires-in", metavar="DURATION", help="How long it can be used, 1m to 1d.")
    ] = "1h",
    project: ProjectOption = None,
) -> None:
    """Print a token with which the services of a project can be called, and nothing else done.

    Callers send it to a service in the place of their own token, which then reaches no gateway. It has your rights to
    the services for as long as you have them, and ends when your own token is replaced.
    No --json: it prints one line.
    """
    session = open_session(ctx, project)
    seconds = seconds_of(expires_in, "--expires-in")
    token = calls.services_create_token(session.client, {"expires_in": seconds, "run_name": name or None})
    session.terminal.print(token["token"])
