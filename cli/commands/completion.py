"""`dstack completion`: names come from what earlier commands saw, so that Tab never waits for a server."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from cli.main import COMPLETE, program
from cli.screen.parameters import command, new_group
from cli.screen.terminal import terminal

app = new_group("Print a script that completes commands and names in your shell.")


@command(
    app,
    "completion",
    "source <(dstack completion bash)",
    "dstack completion fish > ~/.config/fish/completions/dstack.fish",
)
def completion(
    ctx: typer.Context,
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print a script that completes commands and names in your shell.

    No --json: a shell reads it.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(prog_name=program(), complete_var=COMPLETE, shell=shell)
    terminal(ctx).print(script)
