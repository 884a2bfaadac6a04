"""`dstack attach`."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from cli.applying.follow import Stages, ending, exit_code, follow
from cli.applying.job_log import JobLog
from cli.commands.logs import JobOption, SinceOption
from cli.connection.session import completer, open_session
from cli.screen.parameters import ProjectOption, command, new_group
from cli.screen.since import since_moment
from cli.ssh.attachment import AttachOptions, JobAttachment, orderly_end

app = new_group("Connect to a run: SSH, its ports, its log.")


@command(app, "attach", "dstack attach train", "dstack attach train --logs --since 5m", "dstack attach web -p 8081:80")
def attach(
    ctx: typer.Context,
    *,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's name.", autocompletion=completer("run"))],
    project: ProjectOption = None,
    logs: Annotated[bool, typer.Option("--logs", help="Follow its log.")] = False,
    replica: Annotated[
        int | None, typer.Option("--replica", min=0, metavar="N", help="The replica; by default one that is running.")
    ] = None,
    job: JobOption = 0,
    since: SinceOption = None,
    ssh_identity: Annotated[
        str | None,
        typer.Option("--ssh-identity", metavar="KEY", help="Your private key, if the run has another than yours."),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDR", help="This machine's address for the run's ports.")
    ] = "localhost",
    ports: Annotated[
        list[str] | None,
        typer.Option("-p", "--port", metavar="MAP", help="A port of the run, and its local one: 80:8080. Repeatable."),
    ] = None,
) -> None:
    """Connect to a run: SSH, its ports, its log.

    Until the run ends, `ssh RUN` logs in to its job, and its ports are forwarded to this machine; a lost connection is
    made again. Exits with the exit status of the job. Ctrl-C detaches, and the run keeps running.
    No --json: `dstack run get RUN --json` has the run's state.
    """
    if since and not logs:
        raise typer.BadParameter("--since says where the log starts; add --logs.", ctx=ctx)
    session = open_session(ctx, project)
    log = JobLog(session, run, since_moment(since, session.terminal.now())) if logs else None
    wishes = AttachOptions(ssh_identity, host, tuple(ports or ()), explicit=True)
    attachment = JobAttachment(session, run, wishes, needed=not logs or bool(ports))
    stages = Stages(session)
    session.terminal.warn(f"Attaching to {run}. Ctrl-C detaches and leaves it running.")
    with orderly_end(), contextlib.closing(attachment):
        try:
            ended = follow(session, run, replica=replica, job=job, log=log, attachment=attachment, stages=stages)
        except KeyboardInterrupt:
            stages.close()
            session.terminal.warn(f"Detached; {run} keeps running. `dstack logs {run}` shows its log.")
            raise typer.Exit(0) from None
    session.terminal.warn(ending(ended, run, session.terminal.colour))
    raise typer.Exit(exit_code(ended))
