"""`dstack fleet`: the fleets of a project and the machines in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from chalicelib.errors import NotFound, Refused
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
from cli.screen.since import seconds_of
from cli.tables.fleets import fleets_table, joins_table

if TYPE_CHECKING:
    from chalicelib import contract

app = new_group("Manage fleets and their machines.", invoke_without_command=True)
FleetArgument = Annotated[
    str, typer.Argument(metavar="FLEET", help="The fleet's name.", autocompletion=completer("fleet"))
]


@app.callback()
def fleet(
    ctx: typer.Context,
    *,
    project: ProjectOption = None,
    verbose: VerboseOption = False,
    watching: WatchOption = False,
    web: WebOption = False,
) -> None:
    """Manage fleets and their machines."""
    if ctx.invoked_subcommand is None:
        _list(open_session(ctx, project), verbose, watching, json_wanted=False, web=web)


@command(app, "list", "dstack fleet list", "dstack fleet list -v --json")
def list_fleets(
    ctx: typer.Context,
    *,
    project: ProjectOption = None,
    verbose: VerboseOption = False,
    watching: WatchOption = False,
    json_wanted: JsonOption = False,
    web: WebOption = False,
) -> None:
    """List fleets, the newest first, each with its machines."""
    _list(open_session(ctx, project), verbose, watching, json_wanted, web=web)


def _list(session: Session, verbose: bool, watching: bool, json_wanted: bool, *, web: bool) -> None:
    if web:
        console.show(session.terminal, session.client, "fleets")
        return

    def show() -> None:
        fleets = calls.fleets_list(session.client, {"include_imported": True})
        session.cache_names("fleet", [found["name"] for found in fleets])
        if json_wanted:
            found: contract.FleetList = {"shape": 1, "project": session.project, "fleets": fleets}
            session.terminal.print(json.dumps(found, ensure_ascii=False))
            return
        session.show(fleets_table(fleets, session.terminal.now(), session.project, verbose))
        if not fleets:
            session.terminal.warn("No fleets yet. Runs need one: describe it in a file and run `dstack apply -f FILE`.")

    watch(session, show, watching, json_too=json_wanted)


@command(app, "get", "dstack fleet get local", "dstack fleet get local --json | jq '.instances[].status'")
def get(
    ctx: typer.Context,
    *,
    name: Annotated[
        str | None, typer.Argument(metavar="FLEET", help="The fleet's name.", autocompletion=completer("fleet"))
    ] = None,
    fleet_id: Annotated[
        str | None, typer.Option("--id", metavar="UUID", help="The fleet's id, instead of its name.")
    ] = None,
    project: ProjectOption = None,
    json_wanted: JsonOption = False,
) -> None:
    """Show one fleet as a table, or in full with --json."""
    if (name is None) == (fleet_id is None):
        raise typer.BadParameter("Give either the name of a fleet or its --id.", ctx=ctx)
    session = open_session(ctx, project)
    found = session.get_fleet(name) if name is not None else _by_id(session, str(fleet_id))
    if json_wanted:
        session.terminal.print(as_json(found))
        return
    session.show(fleets_table([found], session.terminal.now(), session.project, verbose=True))


def list_all(session: Session) -> None:
    """The table of all fleets, for the older spelling."""
    _list(session, verbose=False, watching=False, json_wanted=False, web=False)


def delete_one(session: Session, fleet: str, number: int, yes: bool) -> None:
    """Deletes one machine, for the older spelling."""
    _delete(session, fleet, [number], yes)


def _by_id(session: Session, fleet_id: str) -> contract.Fleet:
    try:
        found = calls.fleets_get(session.client, {"name": None, "id": fleet_id})
    except NotFound:
        raise NotFound(f"There is no fleet with the id {fleet_id} in project {session.project}.") from None
    return found


@command(
    app, "delete", "dstack fleet delete gpu", "dstack fleet delete gpu -i 0 -i 3 -y", "dstack fleet delete lab --force"
)
def delete(
    ctx: typer.Context,
    *,
    name: FleetArgument,
    instances: Annotated[
        list[int] | None,
        typer.Option("-i", "--instance", min=0, metavar="N", help="Delete only this machine. Repeatable."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Don't wait for unreachable hosts: what was installed there stays there."),
    ] = False,
    project: ProjectOption = None,
    yes: YesOption = False,
) -> None:
    """Delete a fleet and its machines, or single machines of it.

    A fleet or machine in use can't be deleted. Machines are terminated in the background, and hosts of SSH fleets
    cleared of all that was installed there; `dstack fleet` shows them until they are gone.
    No --json: it prints one line.
    """
    _delete(open_session(ctx, project), name, instances or [], yes, force)


@command(app, "delete-instance", "dstack fleet delete-instance gpu 0", "dstack fleet delete-instance gpu 1 2 -y")
def delete_instance(
    ctx: typer.Context,
    *,
    name: FleetArgument,
    numbers: Annotated[
        list[int], typer.Argument(metavar="N", min=0, help="Machine numbers, as shown by `dstack fleet`.")
    ],
    project: ProjectOption = None,
    yes: YesOption = False,
) -> None:
    """Delete single machines of a fleet.

    No --json: it prints one line.
    """
    _delete(open_session(ctx, project), name, numbers, yes)


def _delete(session: Session, name: str, numbers: list[int], yes: bool, force: bool = False) -> None:
    found = session.get_fleet(name)
    existing = sorted(one["instance_num"] for one in found["instances"])
    unknown = [number for number in numbers if number not in existing]
    if unknown:
        raise Refused(
            f"Fleet {name} has no instance {', '.join(map(str, unknown))}.",
            hint=f"It has {', '.join(map(str, existing))}." if existing else "It has no instances now.",
        )
    label = ", ".join(str(number) for number in numbers)
    what = (
        f"instance {label} of fleet {name}"
        if numbers
        else f"fleet {name} and its {len(existing)} {'machine' if len(existing) == 1 else 'machines'}"
    )
    if not yes and not session.terminal.confirm(f"Delete {what}?"):
        session.terminal.print("Nothing was deleted.")
        return
    if numbers:
        calls.fleets_delete_instances(session.client, {"name": name, "instance_nums": numbers, "force": force})
    else:
        calls.fleets_delete(session.client, {"names": [name], "force": force})
    session.terminal.print(f"Deleting {what}.")


@command(app, "join-command", "dstack fleet join-command lab", "dstack fleet join-command lab --expires-in 1d")
def join_command(
    ctx: typer.Context,
    *,
    name: FleetArgument,
    expires_in: Annotated[
        str, typer.Option("--expires-in", metavar="DURATION", help="How long it can be used, 1m to 7d.")
    ] = "1h",
    project: ProjectOption = None,
) -> None:
    """Print a command with which one machine joins an SSH fleet by itself.

    For machines that no SSH from the server reaches: behind NAT, a laptop, a lab. Paste it there, in a shell of root
    or of a user with sudo. It works once, and contains a secret. `ssh_config: {hosts: []}` makes a fleet for such
    machines only.
    No --json: it prints one line.
    """
    session = open_session(ctx, project)
    seconds = seconds_of(expires_in, "--expires-in")
    join = calls.fleets_create_join(session.client, {"name": name, "expires_in": seconds})
    session.terminal.print(join["command"])
    session.terminal.warn(
        f"Paste this on the machine. It works once, for {expires_in}. To revoke it: "
        f"dstack fleet revoke-join {name} {join['id']}"
    )


@command(app, "joins", "dstack fleet joins lab", "dstack fleet joins lab --json")
def joins(
    ctx: typer.Context, *, name: FleetArgument, project: ProjectOption = None, json_wanted: JsonOption = False
) -> None:
    """List the join commands of a fleet, and what became of them."""
    session = open_session(ctx, project)
    found = calls.fleets_list_joins(session.client, {"name": name})
    if json_wanted:
        shown: contract.FleetJoins = {"shape": 1, "fleet": name, "joins": found}
        session.terminal.print(as_json(shown))
        return
    session.show(joins_table(found, session.terminal.now()))


@command(
    app,
    "revoke-join",
    "dstack fleet revoke-join lab 4fd1c2a9-6d0b-4f5e-9d53-3f6f1c1d2b7e",
    "dstack fleet revoke-join lab 4fd1c2a9-6d0b-4f5e-9d53-3f6f1c1d2b7e --project main",
)
def revoke_join(
    ctx: typer.Context,
    *,
    name: FleetArgument,
    join_id: Annotated[str, typer.Argument(metavar="ID", help="The command's id, as `dstack fleet joins` shows it.")],
    project: ProjectOption = None,
) -> None:
    """Revoke a join command that hasn't been used.

    No --json: it prints one line.
    """
    session = open_session(ctx, project)
    calls.fleets_revoke_join(session.client, {"name": name, "id": join_id})
    session.terminal.print(f"The command {join_id} can't be used any more.")
