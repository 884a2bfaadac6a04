"""`dstack delete -f`: deletes what a configuration file describes, by its name."""

from __future__ import annotations

from typing import Annotated

import typer

from chalicelib.errors import NotSupported, Refused
from cli.applying.definition import RUN_TYPES, described
from cli.applying.fleets import delete_fleet
from cli.applying.volumes_and_gateways import delete_gateway, delete_volume
from cli.connection import calls
from cli.connection.session import open_session
from cli.screen.parameters import ProjectOption, YesOption, command, new_group

WHAT = {"fleet": "fleet {} and its machines", "volume": "volume {}", "gateway": "gateway {}"}

app = new_group("Delete what a configuration file describes.")


@command(app, "delete", "dstack delete -f gpu-fleet.dstack.yml", "dstack delete -f train.dstack.yml -y")
def delete(
    ctx: typer.Context,
    project: ProjectOption = None,
    file: Annotated[
        str | None,
        typer.Option("-f", "--file", metavar="FILE", help="The configuration; `-` for standard input (with -y)."),
    ] = None,
    yes: YesOption = False,
) -> None:
    """Delete what a configuration file describes.

    Deletes the fleet, the volume, the gateway, or the record of the run, with the file's `name`. Waits until a fleet, a
    volume or a gateway is gone.
    No --json: it prints one line.
    """
    if file == "-" and not yes:
        raise typer.BadParameter(
            "Reading the file from standard input needs -y: nobody can answer a question there.", ctx=ctx
        )
    session = open_session(ctx, project)
    terminal = session.terminal
    definition = described(terminal, file)
    name, kind = definition.name, definition.kind
    if not name:
        raise Refused(f"{definition.path} has no `name`, so it doesn't say what to delete.", hint="Add its name.")
    if kind in RUN_TYPES:
        session.get_run(name)
    elif kind == "fleet":
        session.get_fleet(name)
    elif kind == "volume":
        session.get_volume(name)
    elif kind == "gateway":
        session.get_gateway(name)
    else:  # a preset: there may be several of a name, and none of them is the project's
        raise NotSupported(f"A {kind} isn't deleted by its file.", hint=f"Use `dstack preset delete {name}`.")
    what = WHAT.get(kind, "run {} and its history").format(name)
    if not yes and not terminal.confirm(f"Delete the {what}?"):
        terminal.print("Nothing was deleted.")
        return
    if kind in RUN_TYPES:
        calls.runs_delete(session.client, {"runs_names": [name]})
    elif kind == "fleet":
        delete_fleet(session, name)
    elif kind == "volume":
        delete_volume(session, name)
    else:
        delete_gateway(session, name)
    terminal.print(f"Deleted the {what}.")
