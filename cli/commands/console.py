"""`dstack console`: the web console in a browser, signed in."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.connection import console
from cli.connection.server_values import web_address
from cli.connection.session import open_session
from cli.screen.parameters import ProjectOption, command, new_group

app = new_group("Open the web console in your browser, signed in.")


@command(app, "console", "dstack console", "dstack console --no-open")
def open_console(
    ctx: typer.Context,
    *,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Only print the address, to open it in a browser elsewhere.")
    ] = False,
    project: ProjectOption = None,
) -> None:
    """Open the web console in your browser, signed in.

    The address has a code that works once, within a minute. The page gets an access token of its own, which may no more
    than yours and ends within 12 hours: `dstack token list` shows it. No --json: it prints one line.
    """
    session = open_session(ctx, project)
    here, client = session.terminal, session.client
    address = web_address(console.signed_in(client, console.page(client)))
    if not no_open and here.browse(address):
        here.print(f"The console of {client.url} is open in your browser.")
        return
    here.warn("Open this address within a minute. It works once, and whoever opens it first is signed in as you.")
    here.print(address)
