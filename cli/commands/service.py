"""`dstack service`: tokens for calling services."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.connection import calls
from cli.connection.session import completer, open_session
from cli.screen.parameters import ProjectOption, command, new_group
from cli.screen.since import seconds_of

app = new_group("Manage access to services.")


@app.callback()
def service() -> None:
    """Manage access to services."""


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
