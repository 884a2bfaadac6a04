"""`dstack server info`: how much space a running server's data takes, and what the server costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.connection import calls
from cli.connection.session import Session, open_session
from cli.screen.parameters import JsonOption, ProjectOption, command, new_group
from cli.screen.render import as_json
from cli.tables.costs import bill_of, cost_table
from cli.tables.objectives import meaning_of, objectives_table
from cli.tables.usage import retention_text, subscriptions_table, usage_table

if TYPE_CHECKING:
    from chalicelib import contract

app = new_group("Show facts about a running server.")

CostOption = Annotated[bool, typer.Option("--cost", help="Show what the server itself costs a month in AWS, and why.")]


@command(
    app, "info", "dstack server info", "dstack server info --cost", "dstack server info --json | jq '.parts[].bytes'"
)
def info(
    ctx: typer.Context, *, cost: CostOption = False, project: ProjectOption = None, json_wanted: JsonOption = False
) -> None:
    """Show how much space a server's data takes, and how long it keeps what nobody uses.

    It is the project's server, and only its global admins may see this.
    """
    session = open_session(ctx, project)
    if cost:
        _show_cost(session, json_wanted)
        return
    found = calls.server_get_usage(session.client)
    if json_wanted:
        shown: contract.ServerInfoDocument = {"shape": 1, **found}
        session.terminal.print(as_json(shown))
        return
    if found["parts"]:
        session.show(usage_table(found))
    else:
        session.terminal.warn("This server keeps its data in AWS, whose console shows the sizes.")
    session.terminal.print(retention_text(found["days"], session.terminal.width, session.terminal.colour))
    if found.get("subscriptions"):  # an older server has none
        session.terminal.print()
        session.show(subscriptions_table(found["subscriptions"]))


def _show_cost(session: Session, json_wanted: bool) -> None:
    found = calls.server_get_cost(session.client)
    if json_wanted:
        shown: contract.ServerCostDocument = {"shape": 1, **found}
        session.terminal.print(as_json(shown))
    elif not found["billed"]:
        session.terminal.print("This server runs on your own machine, so nobody bills its calls.")
    else:
        session.show(cost_table(found))
        session.terminal.print(bill_of(found))


@command(app, "slo", "dstack server slo", "dstack server slo --json | jq '.objectives[] | select(.met | not)'")
def slo(ctx: typer.Context, *, project: ProjectOption = None, json_wanted: JsonOption = False) -> None:
    """Show how a server keeps its objectives, by its own measure: answers, speed, decisions, starts.

    It is the project's server, and only its global admins may see this.
    """
    session = open_session(ctx, project)
    found = calls.server_get_slo(session.client)
    if json_wanted:
        shown: contract.ServerSloDocument = {"shape": 1, **found}
        session.terminal.print(as_json(shown))
    elif not found["measured"]:
        session.terminal.print("This server runs in AWS, where CloudWatch has its metrics: see docs/operate/slo.md.")
    else:
        session.show(objectives_table(found))
        session.terminal.print(meaning_of(found))
