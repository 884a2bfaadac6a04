"""`dstack server migrate`: moves the control plane between this machine and AWS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.screen.parameters import YesOption, command, new_group
from cli.screen.terminal import terminal

app = new_group("Move the control plane.")


@command(
    app,
    "migrate",
    "dstack server migrate prod --keys",
    "dstack server migrate prod --check",
    "dstack server migrate prod --data-dir /srv/dstack",
    "dstack server migrate prod --back --public-url https://dstack.example.com:3000",
    "dstack server migrate prod --abort",
)
def migrate(
    ctx: typer.Context,
    stage: Annotated[str, typer.Argument(metavar="STAGE", help="The stage in AWS, as in `make deploy STAGE=prod`.")],
    *,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", help="The server's data folder; ~/.dstack/server.")
    ] = None,
    back: Annotated[bool, typer.Option("--back", help="Move from the stage into the folder.")] = False,
    public_url: Annotated[
        str | None,
        typer.Option("--public-url", metavar="URL", help="With --back: where agents and people reach the server."),
    ] = None,
    keys: Annotated[
        bool, typer.Option("--keys", help="Only take the keys there, before the stage is deployed.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Only say what can't move.")] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Give up a migration that isn't finished.")] = False,
    yes: YesOption = False,
) -> None:
    """Move the control plane from this machine's data folder into a stage in AWS while its jobs run, or back.

    Run it on the server's machine, where `make deploy` runs. The server goes on until the last moment, and then tells
    agents and people where the control plane is. If the command is interrupted, run it again: it continues. See
    docs/operate/migrate.md. No --json: it prints what it does.
    """
    from chalicelib.runtime.migration.command import Console, Wish, migrate
    from chalicelib.runtime.settings import server_settings

    if len([flag for flag in (keys, check, abort) if flag]) > 1:
        raise typer.BadParameter("Give one of --keys, --check and --abort.", ctx=ctx)
    if public_url and not back:
        raise typer.BadParameter("--public-url goes with --back: a stage in AWS has its own address.", ctx=ctx)
    here = terminal(ctx)
    settings = server_settings(data_dir=data_dir, public_url=public_url)
    wish = Wish(stage, back=back, keys=keys, check=check, abort=abort)
    raise typer.Exit(migrate(settings, wish, Console(here.print, lambda question: yes or here.confirm(question))))
