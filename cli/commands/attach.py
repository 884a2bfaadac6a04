"""`dstack attach`: follows a run. Forwarding its ports over SSH isn't built yet, and is refused by name."""

from __future__ import annotations

from typing import Annotated

import typer

from chalicelib.errors import NotSupported
from cli.commands.logs import JobOption, SinceOption
from cli.follow import Stages, ending, exit_code, follow
from cli.parameters import ProjectOption, command, new_group
from cli.session import completer, open_session
from cli.since import since_moment

app = new_group("Follow a run until it ends.")


@command(app, "attach", "dstack attach train --logs", "dstack attach train --logs --since 5m")
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
        str | None, typer.Option("--ssh-identity", metavar="KEY", help="Not available yet.")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", metavar="ADDR", help="Not available yet.")] = None,
    ports: Annotated[list[str] | None, typer.Option("-p", "--port", metavar="MAP", help="Not available yet.")] = None,
) -> None:
    """Follow a run until it ends.

    Exits with the exit status of its job. Ctrl-C leaves the run running.
    No --json: `dstack run get RUN --json` has the run's state.
    """
    asked = {"--ssh-identity": ssh_identity, "--host": host, "--port": ports}
    for flag, value in asked.items():
        if value:
            raise NotSupported(
                f"{flag} needs an SSH connection to the job, which isn't available yet.", hint="Leave it out."
            )
    if not logs:
        raise NotSupported(
            "Attaching over SSH isn't available yet.", hint=f"To follow its log: `dstack attach {run} --logs`."
        )
    session = open_session(ctx, project)
    start = since_moment(since, session.terminal.now())
    stages = Stages(session)
    try:
        ended = follow(session, run, replica=replica, job=job, since=start, stages=stages)
    except KeyboardInterrupt:
        stages.close()
        session.terminal.warn(f"Detached; {run} keeps running. `dstack logs {run}` shows its log.")
        raise typer.Exit(0) from None
    session.terminal.warn(ending(ended, run, session.terminal.colour))
    raise typer.Exit(exit_code(ended))
