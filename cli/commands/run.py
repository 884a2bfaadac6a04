"""`dstack run get`, and the older `dstack run` as `dstack apply`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from chalicelib.errors import NotFound
from cli.applying.follow import reason_of
from cli.connection import calls, console
from cli.connection.session import completer, open_session
from cli.screen.parameters import CommandGroup, JsonOption, ProjectOption, WebOption, command, new_group
from cli.screen.render import as_json, facts
from cli.tables.cells import local_time, money, requirements
from cli.tables.runs import run_name, run_status
from cli.tables.services import places

if TYPE_CHECKING:
    from typer._click.core import Context

    from cli.screen.parameters import Resolved


class RunGroup(CommandGroup):
    """The group of `dstack run`. Arguments that aren't a command of it belong to the older `dstack run`, now
    `apply`."""

    def resolve_command(self, ctx: Context, args: list[str]) -> Resolved:
        if args[0] in self.commands:
            return super().resolve_command(ctx, args)
        from cli.commands import apply

        arguments = apply_arguments(args)
        typer.echo(f"(`dstack run` is an older spelling; today: dstack apply {shlex.join(arguments)})", err=True)
        found = typer.main.get_command(apply.app)
        self.hand_down(ctx, "apply", found)
        return "apply", found, arguments


def apply_arguments(args: list[str]) -> list[str]:
    """The arguments of the older `dstack run` as those of `dstack apply`: a pool is a fleet, the working folder is
    this."""
    arguments = args[1:] if args[0] in (".", "./") else args
    end = arguments.index("--") if "--" in arguments else len(arguments)
    renamed = [
        "--fleet" if argument == "--pool" else argument.replace("--pool=", "--fleet=", 1)
        for argument in arguments[:end]
    ]
    return renamed + arguments[end:]


app = new_group("One run in full.", cls=RunGroup, no_args_is_help=True, passing_on=True)


@app.callback()
def run(project: ProjectOption = None) -> None:
    """One run in full."""


@command(app, "get", "dstack run get train --json", "dstack run get --id 6f1c9e0e-3f3a-4c58-9a58-6c3f4b0f9b52 --json")
def get(
    ctx: typer.Context,
    *,
    name: Annotated[
        str | None, typer.Argument(metavar="RUN", help="The run's name.", autocompletion=completer("run"))
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--id", metavar="UUID", help="The run's id, instead of its name.")
    ] = None,
    project: ProjectOption = None,
    json_wanted: JsonOption = False,
    web: WebOption = False,
) -> None:
    """Show the main points of one run, or all of it with --json."""
    if (name is None) == (run_id is None):
        raise typer.BadParameter("Give either the name of a run or its --id.", ctx=ctx)
    session = open_session(ctx, project)
    if name is not None:
        found = session.get_run(name)
    else:
        try:
            found = calls.runs_get(session.client, {"run_name": None, "id": run_id})
        except NotFound:
            raise NotFound(
                f"There is no run with the id {run_id} in project {session.project}.",
                hint="`dstack ps -a --json` shows ids.",
            ) from None
    if web:
        console.show(session.terminal, session.client, "runs", run_name(found))
        return
    if json_wanted:
        session.terminal.print(as_json(found))
        return
    configuration, fleet = found["run_spec"].get("configuration") or {}, found["fleet"]
    pairs = [
        ("Name", run_name(found)),
        ("Id", str(found["id"])),
        ("Type", str(configuration.get("type", ""))),
        ("User", found["user"]),
        ("Fleet", fleet["name"] if fleet else "-"),
        ("Resources", requirements(configuration.get("resources"))),
        *places(found, session.client.url),
        ("Status", run_status(found)),
        ("Submitted", local_time(found["submitted_at"])),
        ("Cost", money(found["cost"])),
        ("Why", reason_of(found) if found["status"] != "done" else ""),
    ]
    shown = [(key, value) for key, value in pairs if value]
    session.terminal.print(facts(shown, session.terminal.width, session.terminal.colour))
