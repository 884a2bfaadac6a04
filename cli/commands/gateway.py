"""`dstack gateway`: the gateways of a project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

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
from cli.tables.gateways import certificates_table, gateways_table

if TYPE_CHECKING:
    pass

app = new_group("Manage gateways, which give services their own names.", invoke_without_command=True)
GatewayArgument = Annotated[
    str, typer.Argument(metavar="GATEWAY", help="The gateway's name.", autocompletion=completer("gateway"))
]
FormatOption = Annotated[
    Literal["plain", "json"] | None, typer.Option("--format", metavar="plain|json", help="The output format.")
]


@app.callback()
def gateway(
    ctx: typer.Context,
    *,
    project: ProjectOption = None,
    verbose: VerboseOption = False,
    watching: WatchOption = False,
    format_: FormatOption = None,
    json_wanted: JsonOption = False,
    web: WebOption = False,
) -> None:
    """Manage gateways, which give services their own names."""
    if ctx.invoked_subcommand is None:
        _list(open_session(ctx, project), verbose, watching, json_wanted or format_ == "json", web=web)


@command(app, "list", "dstack gateway list", "dstack gateway list -v --json")
def list_gateways(
    ctx: typer.Context,
    *,
    project: ProjectOption = None,
    verbose: VerboseOption = False,
    watching: WatchOption = False,
    format_: FormatOption = None,
    json_wanted: JsonOption = False,
    web: WebOption = False,
) -> None:
    """List gateways, the newest first; with -v, their messages, and each of several replicas."""
    _list(open_session(ctx, project), verbose, watching, json_wanted or format_ == "json", web=web)


def _list(session: Session, verbose: bool, watching: bool, json_wanted: bool, *, web: bool) -> None:
    if web:
        console.show(session.terminal, session.client, "gateways")
        return

    def show() -> None:
        found = calls.gateways_list(session.client)
        session.cache_names("gateway", [one["name"] for one in found])
        if json_wanted:
            session.terminal.print(as_json({"project": session.project, "gateways": found}))
            return
        session.show(gateways_table(found, session.terminal.now(), verbose))
        if not found:
            session.terminal.warn("No gateways yet. Describe one in a file and run `dstack apply -f FILE`.")

    watch(session, show, watching, json_too=json_wanted)


@command(app, "get", "dstack gateway get door", "dstack gateway get door --json | jq .status")
def get(
    ctx: typer.Context, name: GatewayArgument, project: ProjectOption = None, json_wanted: JsonOption = False
) -> None:
    """Show one gateway and the certificates of its hosts as tables, or in full with --json."""
    session = open_session(ctx, project)
    found = session.get_gateway(name)
    if json_wanted:
        session.terminal.print(as_json(found))
        return
    session.show(gateways_table([found], session.terminal.now(), verbose=True))
    if found.get("certificates"):
        session.terminal.print()
        session.show(certificates_table(found["certificates"]))
        if any(each["next_attempt_at"] for each in found["certificates"]):
            session.terminal.warn("Once that is fixed, apply the gateway's file again: it is tried at once.")


@command(app, "delete", "dstack gateway delete door", "dstack gateway delete door -y")
def delete(ctx: typer.Context, name: GatewayArgument, project: ProjectOption = None, yes: YesOption = False) -> None:
    """Delete a gateway.

    One that services use can't be deleted. The hosts that carry it stay in their fleet. No --json: it prints one line.
    """
    session = open_session(ctx, project)
    session.get_gateway(name)
    if not yes and not session.terminal.confirm(f"Delete gateway {name}?"):
        session.terminal.print("Nothing was deleted.")
        return
    calls.gateways_delete(session.client, {"names": [name]})
    session.terminal.print(f"Deleting gateway {name}.")


@command(
    app,
    "update",
    "dstack gateway update door --set-default",
    "dstack gateway update door --domain example.com",
)
def update(
    ctx: typer.Context,
    name: GatewayArgument,
    project: ProjectOption = None,
    default: Annotated[
        bool, typer.Option("--set-default", help="Make it the gateway of services that name none.")
    ] = False,
    domain: Annotated[
        str | None,
        typer.Option("--domain", metavar="DOMAIN", help="The domain under which its services get their names."),
    ] = None,
) -> None:
    """Change a gateway. To change what its file describes, apply the file again; that also requests missing
    certificates again at once.

    No --json: it prints one line.
    """
    if not default and domain is None:
        raise typer.BadParameter("Nothing to change: give --set-default, --domain, or both.", ctx=ctx)
    session = open_session(ctx, project)
    session.get_gateway(name)
    if domain is not None:
        calls.gateways_set_wildcard_domain(session.client, {"name": name, "wildcard_domain": domain})
    if default:
        calls.gateways_set_default(session.client, {"name": name})
    session.terminal.print(f"Gateway {name} is changed.")
