"""`dstack stop`."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.connection import calls
from cli.connection.session import completer, open_session
from cli.screen.parameters import ProjectOption, YesOption, command, new_group
from cli.tables.runs import FINISHED

app = new_group("Stop runs.")


@command(app, "stop", "dstack stop train", "dstack stop train eval -x -y")
def stop(
    ctx: typer.Context,
    *,
    runs: Annotated[list[str], typer.Argument(metavar="RUN", help="Runs to stop.", autocompletion=completer("run"))],
    project: ProjectOption = None,
    abort: Annotated[bool, typer.Option("-x", "--abort", help="Kill them at once.")] = False,
    yes: YesOption = False,
) -> None:
    """Stop runs.

    Each job gets its `stop_duration` to finish; with --abort it gets none. Returns at once; `dstack ps` shows when the
    runs have ended. No --json: it prints one line.
    """
    session = open_session(ctx, project)
    found = {name: session.get_run(name) for name in runs}
    for name in [name for name, run in found.items() if run.get("status") in FINISHED]:
        session.terminal.print(f"Run {name} has already ended ({found.pop(name)['status']}).")
    if not found:
        return
    names = ", ".join(found)
    if not yes and not session.terminal.confirm(f"{'Abort' if abort else 'Stop'} {names}?"):
        session.terminal.print("Nothing was stopped.")
        return
    calls.runs_stop(session.client, {"runs_names": list(found), "abort": abort})
    session.terminal.print(f"{names}: {'aborting' if abort else 'stopping'}.")
