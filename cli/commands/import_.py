"""`dstack import`: hosts that other projects share with this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.export import fleets_of
from cli.connection import calls
from cli.connection.session import Session, completer, open_session
from cli.screen.parameters import JsonOption, ProjectOption, YesOption, command, new_group
from cli.screen.render import Table, as_json

if TYPE_CHECKING:
    from chalicelib import contract

app = new_group("Fleets that other projects share with this one.", invoke_without_command=True)


@app.callback()
def import_(ctx: typer.Context, project: ProjectOption = None) -> None:
    """Fleets that other projects share with this one."""
    if ctx.invoked_subcommand is None:
        _list(open_session(ctx, project), json_wanted=False)


@command(app, "list", "dstack import list", "dstack import list --json")
def list_imports(ctx: typer.Context, project: ProjectOption = None, json_wanted: JsonOption = False) -> None:
    """List what other projects share with this one. A run names such a fleet as PROJECT/FLEET."""
    _list(open_session(ctx, project), json_wanted)


def _list(session: Session, json_wanted: bool) -> None:
    found = calls.imports_list(session.client)
    named = [(f"{one['export']['project_name']}/{one['export']['name']}", one["export"]) for one in found]
    session.cache_names("import", [name for name, _ in named])
    if json_wanted:
        shown: contract.ImportList = {"shape": 1, "project": session.project, "imports": found}
        session.terminal.print(as_json(shown))
        return
    table = Table(("NAME", "FLEETS"))
    for name, one in named:
        table.add(name, fleets_of(one))
    session.show(table)


@command(app, "delete", "dstack import delete lab/gpus", "dstack import delete lab/gpus -y")
def delete(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="PROJECT/EXPORT", help="The import, as listed.", autocompletion=completer("import")),
    ],
    project: ProjectOption = None,
    yes: YesOption = False,
) -> None:
    """Give back what another project shares. This project's jobs there end.

    No --json: it prints one line.
    """
    exporter, slash, export = name.partition("/")
    if not (exporter and slash and export):
        raise typer.BadParameter(f"{name!r} isn't of the form PROJECT/EXPORT.", ctx=ctx)
    session = open_session(ctx, project)
    if not yes and not session.terminal.confirm(f"Give {name} back, and end the jobs of {session.project} there?"):
        session.terminal.print("Nothing was deleted.")
        return
    calls.imports_delete(session.client, {"export_name": export, "export_project_name": exporter})
    session.terminal.print(f"Import {name} is deleted.")
