"""`dstack pool`: the spelling of older documents. Each command prints today's spelling on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from chalicelib.errors import NotFound, NotSupported
from cli.applying.definition import fleet_definition
from cli.applying.flags import IDLE, PLACES, PROFILE, RESOURCES, RETRY, SPOT, overrides, taking
from cli.applying.fleets import apply_fleet
from cli.applying.runs import ApplyOptions, LoadedConfiguration
from cli.commands.fleet import delete_one, list_all
from cli.connection.session import Session, open_session
from cli.screen.parameters import ProjectOption, Value, YesOption, command, new_group

if TYPE_CHECKING:
    from chalicelib import contract

app = new_group("Older spelling of the fleet commands.", no_args_is_help=True)

PoolOption = Annotated[str, typer.Option("--pool", metavar="NAME", help="The fleet to use as the pool.")]
PortOption = Annotated[
    int | None, typer.Option("-p", "--port", min=1, max=65535, metavar="N", help="The host's SSH port.")
]
DEFAULT_POOL = "default-pool"


@app.callback()
def pool(project: ProjectOption = None) -> None:
    """Older spelling of the fleet commands."""


@command(app, "list", "dstack pool list", "dstack pool list --project main")
def list_pools(ctx: typer.Context, project: ProjectOption = None) -> None:
    """List fleets. No --json: `dstack fleet list --json` has it."""
    _hint(ctx, "dstack fleet list")
    list_all(open_session(ctx, project))


@command(app, "ps", "dstack pool ps", "dstack pool ps --project main")
def ps(ctx: typer.Context, project: ProjectOption = None) -> None:
    """List the machines of fleets. No --json: `dstack fleet list --json` has it."""
    _hint(ctx, "dstack fleet")
    list_all(open_session(ctx, project))


@command(app, "add", "dstack pool add --gpu 24GB.. --max-price 1", "dstack pool add --cpu 8.. --idle-duration 2h -y")
@taking(RESOURCES, PROFILE, PLACES, IDLE, SPOT, RETRY)
def add(
    ctx: typer.Context,
    *,
    project: ProjectOption = None,
    pool_name: PoolOption = DEFAULT_POOL,
    yes: YesOption = False,
    **flags: Value,
) -> None:
    """Add one machine to the fleet, which is created if needed. An idle machine is removed after --idle-duration.

    The profile fills in what no flag sets. Machines of another kind need a fleet of their own: use --pool.
    No --json: it shows the fleet's table.
    """
    flags_given = overrides(ctx)
    session = open_session(ctx, project)
    count = 1 + _machines(session, pool_name)
    nodes = {"min": 0, "target": count, "max": count}
    _hint(ctx, f"dstack apply -f FILE, with `type: fleet` and `nodes: {{min: 0, target: {count}, max: {count}}}`")
    document = {"type": "fleet", "name": pool_name, "nodes": nodes}
    profile = {"profile": flags["profile"], "no_profile": flags["no_profile"]}
    _apply(session, fleet_definition(session.terminal, document, flags_given, **profile), yes=yes)


def _machines(session: Session, fleet: str) -> int:
    """The number of machines in the fleet."""
    try:
        found = session.get_fleet(fleet)
    except NotFound:
        return 0
    return sum(one["status"] not in ("terminating", "terminated") for one in found["instances"])


@command(
    app,
    "add-ssh",
    "dstack pool add-ssh ubuntu@10.0.0.7 -i ~/.ssh/id_ed25519",
    "dstack pool add-ssh ubuntu@gpu1 -i key -p 2222 -J ubuntu@login1 --pool lab -y",
)
def add_ssh(
    ctx: typer.Context,
    *,
    destination: Annotated[str, typer.Argument(metavar="[USER@]HOST", help="The host, as ssh takes it.")],
    identity: Annotated[str, typer.Option("-i", "--identity", metavar="KEY", help="The private key to log in with.")],
    ssh_port: PortOption = None,
    login: Annotated[str | None, typer.Option("-l", "--login", metavar="USER", help="The user to log in as.")] = None,
    jump: Annotated[str | None, typer.Option("-J", "--jump", metavar="USER@HOST[:PORT]", help="A jump host.")] = None,
    other: Annotated[
        list[str] | None, typer.Option("-o", "--option", metavar="NAME=VALUE", help="Not available.")
    ] = None,
    project: ProjectOption = None,
    pool_name: PoolOption = DEFAULT_POOL,
    yes: YesOption = False,
) -> None:
    """Add a machine of your own by applying an SSH fleet with that host. No --json: it shows the fleet's table."""
    _hint(ctx, "dstack apply -f FILE, with `type: fleet` and `ssh_config`")
    if other:
        raise NotSupported(
            f"-o {other[0]}: ssh options can't be passed on.", hint="Use the flags for host, user, port and key."
        )
    user, _, host = destination.rpartition("@")
    user = user or login or ""
    if not user or not host:
        raise typer.BadParameter(f"{destination!r} is not USER@HOST, and there is no -l USER.", ctx=ctx)
    ssh: contract.Configuration = {"user": user, "identity_file": identity, "hosts": [host]}
    if ssh_port:
        ssh["port"] = ssh_port
    if jump:
        ssh["proxy_jump"] = {**_jump(ctx, jump, user), "identity_file": identity}
    session = open_session(ctx, project)
    document = {"type": "fleet", "name": pool_name, "ssh_config": ssh}
    _apply(session, fleet_definition(session.terminal, document, overrides(ctx)), yes=yes)


def _jump(ctx: typer.Context, text: str, user: str) -> contract.Configuration:
    """`ubuntu@login1:2222` as ssh's -J takes it; the user is the same by default."""
    named, _, place = text.rpartition("@")
    host, _, port = place.partition(":")
    if not host or (port and not port.isdigit()):
        raise typer.BadParameter(f"{text!r} is not USER@HOST or USER@HOST:PORT.", ctx=ctx)
    return {"hostname": host, "user": named or user, **({"port": int(port)} if port else {})}


@command(app, "remove", "dstack pool remove gpu-0", "dstack pool remove gpu-0 -y")
def remove(
    ctx: typer.Context,
    instance: Annotated[str, typer.Argument(metavar="INSTANCE", help="A machine's name, as FLEET-NUMBER.")],
    project: ProjectOption = None,
    yes: YesOption = False,
) -> None:
    """Remove one machine by its name. No --json: it prints one line."""
    fleet, _, number = instance.rpartition("-")
    if not fleet or not number.isdigit():
        raise NotFound(
            f"{instance!r} isn't the name of a machine.", hint="Machines are called FLEET-NUMBER; see `dstack fleet`."
        )
    _hint(ctx, f"dstack fleet delete {fleet} -i {number}")
    delete_one(open_session(ctx, project), fleet, int(number), yes)


def _apply(session: Session, definition: LoadedConfiguration, *, yes: bool) -> None:
    with definition.places.locating():
        raise typer.Exit(apply_fleet(session, definition, ApplyOptions(yes=yes, in_place=True)))


def _hint(ctx: typer.Context, today: str) -> None:
    typer.echo(f"(`dstack pool` is an older spelling; today: {today})", err=True)
