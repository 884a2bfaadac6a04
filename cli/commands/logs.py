"""`dstack logs`."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.follow import follow, job_of
from cli.job_log import JobLog, LogReader
from cli.parameters import ProjectOption, command, new_group
from cli.session import completer, open_session
from cli.since import since_moment
from cli.tables.runs import FINISHED, newest

app = new_group("Print the log of a run, and follow it while the run is active.")

NOT_STARTED = ("submitted", "provisioning", "pulling")

ReplicaOption = Annotated[int, typer.Option("--replica", min=0, metavar="N", help="The replica.")]
JobOption = Annotated[int, typer.Option("--job", min=0, metavar="N", help="The node of the replica.")]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="WHEN", help="Start there: an age (15m) or a date.")
]


@command(app, "logs", "dstack logs train", "dstack logs train --since 10m --no-follow", "dstack logs train > train.log")
def logs(
    ctx: typer.Context,
    *,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's name.", autocompletion=completer("run"))],
    project: ProjectOption = None,
    diagnose: Annotated[
        bool, typer.Option("-d", "--diagnose", help="Show events of the run and its machine instead.")
    ] = False,
    replica: ReplicaOption = 0,
    job: JobOption = 0,
    since: SinceOption = None,
    following: Annotated[
        bool | None, typer.Option("--follow/--no-follow", help="Follow until the run ends; default on a terminal.")
    ] = None,
) -> None:
    """Print the log of a run, and follow it while the run is active.

    On a terminal it follows the log; piped, it prints what there is and exits. Ctrl-C ends it, and the run keeps
    running.
    No --json: a log is the job's own bytes.
    """
    session = open_session(ctx, project)
    start = since_moment(since, session.terminal.now())
    if following is None:
        following = session.terminal.watched
    found = session.get_run(run)
    try:
        if following and found["status"] not in FINISHED:
            log = JobLog(session, run, start, diagnose=diagnose)
            follow(session, run, replica=replica, job=job, log=log)
            return
        latest = newest(job_of(found, replica, job) or {})
        if "id" not in latest:
            session.terminal.warn(f"Run {run} has no job yet: it is {found['status']}.")
            return
        if not LogReader(session, run, latest["id"], start, diagnose).drain() and latest["status"] in NOT_STARTED:
            session.terminal.warn(f"Run {run} has no log yet: it is {found['status']}.")
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
