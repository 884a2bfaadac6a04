"""`dstack export`: hosts of this project that other projects may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.connection import calls, console
from cli.connection.session import Session, completer, open_session
from cli.screen.parameters import JsonOption, ProjectOption, WebOption, YesOption, command, new_group
from cli.screen.render import Table, as_json

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies

app = new_group("Share SSH fleets with other projects.", invoke_without_command=True)
ExportArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The export's name.", autocompletion=completer("export"))
]
GATEWAYS = "Refused by name: a gateway serves its own project."


@app.callback()
def export(ctx: typer.Context, project: ProjectOption = None, web: WebOption = False) -> None:
    """Share SSH fleets with other projects."""
    if ctx.invoked_subcommand is None:
        _list(open_session(ctx, project), json_wanted=False, web=web)


@command(app, "list", "dstack export list", "dstack export list --json")
def list_exports(
    ctx: typer.Context, project: ProjectOption = None, json_wanted: JsonOption = False, web: WebOption = False
) -> None:
    """List what this project shares, and with which projects."""
    _list(open_session(ctx, project), json_wanted, web=web)


def _list(session: Session, json_wanted: bool, *, web: bool) -> None:
    if web:
        console.show(session.terminal, session.client, "settings", "exports")
        return
    found = calls.exports_list(session.client)
    session.cache_names("export", [one["name"] for one in found])
    if json_wanted:
        shown: contract.ExportList = {"shape": 1, "project": session.project, "exports": found}
        session.terminal.print(as_json(shown))
        return
    session.show(exports_table(found))


@command(
    app,
    "create",
    "dstack export create lab --fleet gpus --importer research",
    "dstack export create common --fleet gpus --global",
)
def create(
    ctx: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The export's name.")],
    importers: Annotated[
        list[str] | None, typer.Option("--importer", metavar="PROJECT", help="A project to share it with; repeatable.")
    ] = None,
    fleets: Annotated[
        list[str] | None, typer.Option("--fleet", metavar="NAME", help="An SSH fleet to share; repeatable.")
    ] = None,
    gateways: Annotated[list[str] | None, typer.Option("--gateway", metavar="NAME", help=GATEWAYS)] = None,
    everybody: Annotated[
        bool, typer.Option("--global", help="Share it with every project; for global admins.")
    ] = False,
    project: ProjectOption = None,
) -> None:
    """Share fleets of hosts with other projects, of which you are an admin too.

    Their runs use them like fleets of their own, as PROJECT/FLEET. No --json: it prints a table.
    """
    session = open_session(ctx, project)
    body: bodies.CreateExportBody = {
        "name": name,
        "is_global": everybody,
        "importer_projects": importers or [],
        "exported_fleets": fleets or [],
        "exported_gateways": gateways or [],
    }
    session.show(exports_table([calls.exports_create(session.client, body)]))


@command(
    app,
    "update",
    "dstack export update lab --add-fleet more --remove-importer research",
    "dstack export update lab --set-global",
)
def update(
    ctx: typer.Context,
    *,
    name: ExportArgument,
    add_importers: Annotated[
        list[str] | None,
        typer.Option("--add-importer", metavar="PROJECT", help="Also share it with this project; repeatable."),
    ] = None,
    remove_importers: Annotated[
        list[str] | None,
        typer.Option(
            "--remove-importer",
            metavar="PROJECT",
            help="Stop sharing it with this project, whose jobs there end; repeatable.",
        ),
    ] = None,
    add_fleets: Annotated[
        list[str] | None, typer.Option("--add-fleet", metavar="NAME", help="Also share this SSH fleet; repeatable.")
    ] = None,
    remove_fleets: Annotated[
        list[str] | None,
        typer.Option(
            "--remove-fleet",
            metavar="NAME",
            help="Stop sharing this fleet, where other projects' jobs end; repeatable.",
        ),
    ] = None,
    add_gateways: Annotated[list[str] | None, typer.Option("--add-gateway", metavar="NAME", help=GATEWAYS)] = None,
    remove_gateways: Annotated[
        list[str] | None, typer.Option("--remove-gateway", metavar="NAME", help=GATEWAYS)
    ] = None,
    set_global: Annotated[bool, typer.Option("--set-global", help="Share it with every project.")] = False,
    unset_global: Annotated[bool, typer.Option("--unset-global", help="Share it with its importers only.")] = False,
    project: ProjectOption = None,
) -> None:
    """Change what an export shares, and with whom.

    No --json: it prints a table.
    """
    if set_global and unset_global:
        raise typer.BadParameter("--set-global and --unset-global exclude each other.", ctx=ctx)
    session = open_session(ctx, project)
    body: bodies.UpdateExportBody = {
        "name": name,
        "set_global": set_global,
        "unset_global": unset_global,
        "add_importer_projects": add_importers or [],
        "remove_importer_projects": remove_importers or [],
        "add_exported_fleets": add_fleets or [],
        "remove_exported_fleets": remove_fleets or [],
        "add_exported_gateways": add_gateways or [],
        "remove_exported_gateways": remove_gateways or [],
    }
    session.show(exports_table([calls.exports_update(session.client, body)]))


@command(app, "delete", "dstack export delete lab", "dstack export delete lab -y")
def delete(ctx: typer.Context, name: ExportArgument, project: ProjectOption = None, yes: YesOption = False) -> None:
    """End an export. Jobs of other projects on its hosts end.

    No --json: it prints one line.
    """
    session = open_session(ctx, project)
    if not yes and not session.terminal.confirm(
        f"End export {name} of {session.project}, and the jobs of other projects there?"
    ):
        session.terminal.print("Nothing was deleted.")
        return
    calls.exports_delete(session.client, {"name": name})
    session.terminal.print(f"Export {name} is deleted.")


def exports_table(found: list[contract.Export]) -> Table:
    table = Table(("NAME", "FLEETS", "IMPORTERS"))
    for one in found:
        importers = [each["project_name"] for each in one["imports"]]
        table.add(one["name"], fleets_of(one), "*" if one["is_global"] else ", ".join(importers) or "-")
    return table


def fleets_of(export: contract.Export | contract.ImportedExport) -> str:
    return ", ".join(each["name"] for each in export["exported_fleets"]) or "-"
