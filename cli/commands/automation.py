"""`dstack automation`: the configurations that rules may apply, stop and delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from chalicelib.errors import NotFound, Refused
from cli.connection import calls, console
from cli.connection.session import Session, completer, open_session
from cli.screen.parameters import JsonOption, ProjectOption, WebOption, YesOption, command, new_group
from cli.screen.render import Table, as_json
from cli.tables.cells import age

if TYPE_CHECKING:
    from chalicelib import contract

app = new_group("Store configurations for rules to apply, stop and delete.", invoke_without_command=True)
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The configuration's name.", autocompletion=completer("automation"))
]


@app.callback()
def automation(ctx: typer.Context, project: ProjectOption = None, web: WebOption = False) -> None:
    """Store configurations for rules to apply, stop and delete."""
    if ctx.invoked_subcommand is None:
        _list(open_session(ctx, project), json_wanted=False, web=web)


@command(app, "list", "dstack automation list", "dstack automation list --json")
def list_automations(
    ctx: typer.Context, project: ProjectOption = None, json_wanted: JsonOption = False, web: WebOption = False
) -> None:
    """List the stored configurations, and who stored each."""
    _list(open_session(ctx, project), json_wanted, web=web)


def _list(session: Session, json_wanted: bool, *, web: bool) -> None:
    if web:
        console.show(session.terminal, session.client, "settings", "automations")
        return
    found = calls.automations_list(session.client)
    session.cache_names("automation", [one["name"] for one in found])
    if json_wanted:
        shown: contract.AutomationList = {"shape": 1, "project": session.project, "automations": found}
        session.terminal.print(as_json(shown))
        return
    table, now = Table(("NAME", "TYPE", "USER", "STORED")), session.terminal.now()
    for one in found:
        table.add(one["name"], one["type"], one["user"], age(one["stored_at"], now))
    session.show(table)


@command(app, "add", "dstack automation add -f train.dstack.yml", "dstack automation add -f cloud.dstack.yml")
def add(
    ctx: typer.Context,
    project: ProjectOption = None,
    file: Annotated[
        str | None, typer.Option("-f", "--file", metavar="FILE", help="The configuration; `-` for standard input.")
    ] = None,
) -> None:
    """Store a configuration, or replace the one of its name.

    It is checked now as if it were applied. A rule applies it in your name, with the rights that you have then.
    No --json: it prints one line.
    """
    session = open_session(ctx, project)
    name = _stored(session, file)
    session.terminal.print(f"Configuration {name} is stored. Rules apply it in your name.")


def _stored(session: Session, file: str | None) -> str:
    from cli.applying.definition import RUN_TYPES, load_definition
    from cli.applying.fleets import with_ssh_keys
    from cli.applying.runs import ApplyOptions, Submission

    terminal = session.terminal
    definition = load_definition(terminal, file)
    configuration = definition.configuration
    with definition.places.locating():
        if configuration.get("files"):
            raise Refused(
                f"{definition.path} has `files`, and what is uploaded isn't kept for rules.",
                hint="Put them into a repository, an image or a volume.",
            )
        if definition.kind in RUN_TYPES:
            spec = Submission(session, definition, ApplyOptions()).prepared()
        elif definition.kind == "fleet":
            keyed = with_ssh_keys(configuration, terminal.cwd, terminal.home)
            spec = {"configuration": keyed, "configuration_path": definition.path, "profile": definition.profile}
        else:
            spec = {"configuration": configuration, "configuration_path": definition.path}
        return str(calls.automations_add(session.client, {"spec": spec})["name"])


@command(app, "delete", "dstack automation delete train", "dstack automation delete train -y")
def delete(ctx: typer.Context, name: NameArgument, project: ProjectOption = None, yes: YesOption = False) -> None:
    """Delete a stored configuration.

    What was applied of it stays. No --json: it prints one line.
    """
    session = open_session(ctx, project)
    stored(session, name)
    if not yes and not session.terminal.confirm(f"Delete the stored configuration {name}?"):
        session.terminal.print("Nothing was deleted.")
        return
    calls.automations_delete(session.client, {"names": [name]})
    session.terminal.print(f"Configuration {name} is deleted. Rules that name it are refused from now on.")


def stored(session: Session, name: str) -> contract.Automation:
    for one in calls.automations_list(session.client):
        if one["name"] == name:
            return one
    raise NotFound(
        f"No configuration {name} is stored in project {session.project}.", hint="See them with `dstack automation`."
    )
