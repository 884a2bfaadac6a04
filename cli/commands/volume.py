"""`dstack volume`: the volumes of a project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.connection import calls, console
from cli.connection.session import Session, completer, open_session, watch
from cli.screen.parameters import (
    JsonOption,
    ProjectOption,
    VerboseOption,
    WatchOption,
    WebOption,
    YesOption,
    command,
    new_group,
)
from cli.screen.render import as_json
from cli.tables.volumes import volumes_table

if TYPE_CHECKING:
    from chalicelib import contract

app = new_group("Manage volumes: disks that outlive runs.", invoke_without_command=True)
VolumeArgument = Annotated[
    str, typer.Argument(metavar="VOLUME", help="The volume's name.", autocompletion=completer("volume"))
]


@app.callback()
def volume(
    ctx: typer.Context,
    *,
    project: ProjectOption = None,
    verbose: VerboseOption = False,
    watching: WatchOption = False,
    web: WebOption = False,
) -> None:
    """Manage volumes: disks that outlive runs."""
    if ctx.invoked_subcommand is None:
        _list(open_session(ctx, project), verbose, watching, json_wanted=False, web=web)


@command(app, "list", "dstack volume list", "dstack volume list -v --json")
def list_volumes(
    ctx: typer.Context,
    *,
    project: ProjectOption = None,
    verbose: VerboseOption = False,
    watching: WatchOption = False,
    json_wanted: JsonOption = False,
    web: WebOption = False,
) -> None:
    """List volumes, the newest first."""
    _list(open_session(ctx, project), verbose, watching, json_wanted, web=web)


def _list(session: Session, verbose: bool, watching: bool, json_wanted: bool, *, web: bool) -> None:
    if web:
        console.show(session.terminal, session.client, "volumes")
        return

    def show() -> None:
        found = calls.volumes_list(session.client)
        session.cache_names("volume", [one["name"] for one in found])
        if json_wanted:
            shown: contract.VolumeList = {"shape": 1, "project": session.project, "volumes": found}
            session.terminal.print(as_json(shown))
            return
        session.show(volumes_table(found, session.terminal.now(), verbose))
        if not found:
            session.terminal.warn("No volumes yet. Describe one in a file and run `dstack apply -f FILE`.")

    watch(session, show, watching, json_too=json_wanted)


@command(app, "get", "dstack volume get data", "dstack volume get data --json | jq .status")
def get(
    ctx: typer.Context, name: VolumeArgument, project: ProjectOption = None, json_wanted: JsonOption = False
) -> None:
    """Show one volume as a table, or in full with --json."""
    session = open_session(ctx, project)
    found = session.get_volume(name)
    if json_wanted:
        session.terminal.print(as_json(found))
        return
    session.show(volumes_table([found], session.terminal.now(), verbose=True))


@command(app, "delete", "dstack volume delete data", "dstack volume delete data -y")
def delete(ctx: typer.Context, name: VolumeArgument, project: ProjectOption = None, yes: YesOption = False) -> None:
    """Delete a volume with all its data.

    An attached volume can't be deleted. One that existed before it was applied is only forgotten: its provider keeps
    it. No --json: it prints one line.
    """
    session = open_session(ctx, project)
    found = session.get_volume(name)
    what = f"volume {name}" if found["external"] else f"volume {name} and all its data"
    if not yes and not session.terminal.confirm(f"Delete {what}?"):
        session.terminal.print("Nothing was deleted.")
        return
    calls.volumes_delete(session.client, {"names": [name]})
    session.terminal.print(f"Deleting {what}.")
