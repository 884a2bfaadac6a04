"""`dstack logs`."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.applying.follow import follow, job_of
from cli.applying.job_log import JobLog, LogReader, last_lines
from cli.connection import console
from cli.connection.session import completer, open_session
from cli.screen.parameters import ProjectOption, WebOption, command, new_group
from cli.screen.since import since_moment
from cli.tables.runs import FINISHED, newest

app = new_group("Print the log of a run, and follow it while the run is active.")

NOT_STARTED = ("submitted", "provisioning", "pulling")

ReplicaOption = Annotated[int, typer.Option("--replica", min=0, metavar="N", help="The replica.")]
JobOption = Annotated[int, typer.Option("--job", min=0, metavar="N", help="The node of the replica.")]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="WHEN", help="Start there: an age (15m) or a date.")
]


@command(app, "logs", "dstack logs train", "dstack logs train -f --tail 20", "dstack logs train > train.log")
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
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, metavar="N", help="Start with the last N lines that there are.")
    ] = None,
    following: Annotated[
        bool | None, typer.Option("-f", "--follow/--no-follow", help="Until the run ends; default on a terminal.")
    ] = None,
    web: WebOption = False,
) -> None:
    """Print the log of a run, and follow it while the run is active.

    On a terminal it follows the log; piped, it prints what there is and exits. Ctrl-C ends it, and the run keeps
    running.
    No --json: a log is the job's own bytes.
    """
    session = open_session(ctx, project)
    if web:
        console.show(session.terminal, session.client, "runs", run, tab="logs")
        return
    start = since_moment(since, session.terminal.now())
    explicit, found = following is not None, session.get_run(run)
    if following is None:
        following = session.terminal.watched
    try:
        chosen, skip = job_of(found, replica, job), 0
        latest = newest(chosen) if chosen else None
        if tail is not None and latest:
            start, skip = last_lines(LogReader(session, run, latest["id"], start, diagnose), tail)
        if following and found["status"] not in FINISHED:
            if not explicit:
                session.terminal.warn(f"Following {run}: Ctrl-C leaves it running; --no-follow prints what there is.")
            log = JobLog(session, run, start, diagnose=diagnose, skip=skip)
            follow(session, run, replica=replica, job=job, log=log)
            return
        if latest is None:
            session.terminal.warn(f"Run {run} has no job yet: it is {found['status']}.")
            return
        reader = LogReader(session, run, latest["id"], start, diagnose, skip=skip)
        if not reader.drain() and latest["status"] in NOT_STARTED:
            session.terminal.warn(f"Run {run} has no log yet: it is {found['status']}.")
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
