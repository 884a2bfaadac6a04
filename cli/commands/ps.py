"""`dstack ps`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from chalicelib.domain import pages
from cli.connection import calls, console
from cli.connection.session import Session, open_session, watch
from cli.screen.parameters import JsonOption, ProjectOption, VerboseOption, WatchOption, WebOption, command, new_group
from cli.tables.runs import run_name, runs_table

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies

app = new_group("List runs.")


@command(app, "ps", "dstack ps", "dstack ps -a -v", "dstack ps -n 20 --json | jq '.runs[].status'")
def ps(
    ctx: typer.Context,
    *,
    project: ProjectOption = None,
    all_runs: Annotated[bool, typer.Option("-a", "--all", help="Include finished runs.")] = False,
    verbose: VerboseOption = False,
    watching: WatchOption = False,
    last: Annotated[
        int | None, typer.Option("-n", "--last", min=1, metavar="N", help="The newest N runs, including finished ones.")
    ] = None,
    format_: Annotated[
        Literal["plain", "json"] | None, typer.Option("--format", metavar="plain|json", help="The output format.")
    ] = None,
    as_json: JsonOption = False,
    web: WebOption = False,
) -> None:
    """List runs.

    Shows the active runs; if there are none, the last one that ended.
    """
    session = open_session(ctx, project)
    if web:
        console.show(session.terminal, session.client, "runs")
        return
    as_json = as_json or format_ == "json"

    def show() -> None:
        runs = fetch_runs(session, everything=all_runs or last is not None, limit=last or pages.RUNS)
        session.cache_names("run", map(run_name, runs))
        if as_json:
            session.terminal.print(json.dumps({"project": session.project, "runs": runs}, ensure_ascii=False))
            return
        session.show(runs_table(runs, session.terminal.now(), verbose))

    watch(session, show, watching, json_too=as_json)


def fetch_runs(session: Session, *, everything: bool, limit: int) -> list[contract.Run]:
    """Runs, newest first: the active ones, else the last that ended; or all of them, `limit` at most, page by page."""
    if not everything:
        return _page(session, only_active=True, limit=limit) or _page(session, only_active=False, limit=1)
    runs: list[contract.Run] = []
    while len(runs) < limit:
        page = _page(
            session, only_active=False, limit=min(pages.RUNS, limit - len(runs)), after=runs[-1] if runs else None
        )
        runs += page
        if not page:
            break
    return runs


def _page(session: Session, *, only_active: bool, limit: int, after: contract.Run | None = None) -> list[contract.Run]:
    body: bodies.ListRunsBody = {
        "project_name": session.project,
        "repo_id": None,
        "username": None,
        "only_active": only_active,
        "include_jobs": True,
        "job_submissions_limit": 1,
        "prev_submitted_at": after["submitted_at"] if after else None,
        "prev_run_id": after["id"] if after else None,
        "limit": limit,
        "ascending": False,
    }
    return calls.runs_list(session.client, body)
