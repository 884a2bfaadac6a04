"""`dstack metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from chalicelib.errors import NotFound
from cli.connection import calls, console
from cli.connection.session import completer, open_session, watch
from cli.screen.parameters import JsonOption, ProjectOption, WebOption, command, new_group
from cli.screen.render import as_json
from cli.tables.metrics import axis_line, axis_of, metrics_table

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies

SAMPLES = 1000

app = new_group("Show a run's CPU, memory and GPU use.")


@command(app, "metrics", "dstack metrics train", "dstack metrics train --replica 1 --json")
def metrics(
    ctx: typer.Context,
    *,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's name.", autocompletion=completer("run"))],
    project: ProjectOption = None,
    watching: Annotated[bool, typer.Option("-w", "--watch", help="Refresh until Ctrl-C.")] = False,
    replica: Annotated[
        int | None, typer.Option("--replica", min=0, metavar="N", help="Show only this replica.")
    ] = None,
    job: Annotated[int | None, typer.Option("--job", min=0, metavar="N", help="Show only this node.")] = None,
    json_wanted: JsonOption = False,
    web: WebOption = False,
) -> None:
    """Show a run's CPU, memory and GPU use.

    One row for the CPU and one for each GPU of each job: the latest value, and bars for its course over the
    last hour, or since the run began.
    """
    session = open_session(ctx, project)
    if web:
        console.show(session.terminal, session.client, "runs", run, tab="metrics")
        return

    def show() -> None:
        found = session.get_run(run)
        jobs: list[tuple[contract.Job, list[contract.Series]]] = []
        for one in found["jobs"]:
            spec = one["job_spec"]
            if replica not in (None, spec["replica_num"]) or job not in (None, spec["job_num"]):
                continue
            query: bodies.JobQuery = {
                "replica_num": spec["replica_num"],
                "job_num": spec["job_num"],
                "limit": SAMPLES,
            }
            jobs.append((one, calls.metrics_job(session.client, run, query)["metrics"]))
        if not jobs:
            raise NotFound(
                f"Run {run} has no such job.", hint=f"It is {found['status']}; `dstack ps -v` lists its jobs."
            )
        if json_wanted:
            shown: contract.Metrics = {
                "shape": 1,
                "project": session.project,
                "run": run,
                "jobs": [{"job": one["job_spec"]["job_name"], "metrics": values} for one, values in jobs],
            }
            session.terminal.print(as_json(shown))
            return
        session.show(metrics_table(jobs))
        if axis := axis_of(jobs):
            session.terminal.print(axis_line(axis))

    watch(session, show, watching, json_too=json_wanted)
