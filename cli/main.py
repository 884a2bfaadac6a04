"""The entry point `dstack`: finds the command group that was asked for, and turns errors into text and an exit code.

A group is imported when it is called, never to list it: its line of help stands in `GROUPS` (a test compares them).
Exit codes: 0 done, 1 an error or a failed run, 2 a wrong command line, else the exit status of the followed job.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from chalicelib.errors import DstackError, Invalid, WrongFlag
from cli.parameters import Group, new_group
from cli.render import paint
from cli.terminal import Terminal

GROUPS: dict[str, tuple[str, str]] = {  # name: module under cli.commands, one line of help
    "apply": ("apply", "Create or change what a configuration file describes."),
    "attach": ("attach", "Follow a run until it ends."),
    "completion": ("completion", "Print a script that completes commands and names in your shell."),
    "delete": ("delete", "Delete what a configuration file describes."),
    "event": ("event", "What happened: runs, jobs, fleets and instances, oldest first."),
    "export": ("unbuilt", "Share fleets with other projects (not available yet)."),
    "fleet": ("fleet", "Fleets and the machines in them."),
    "gateway": ("unbuilt", "Gateways for services (not available yet)."),
    "import": ("unbuilt", "Fleets that other projects share (not available yet)."),
    "init": ("init", "Prepare this folder: an example configuration, and the schema for your editor."),
    "login": ("unbuilt", "Log in through a browser (not available yet)."),
    "logs": ("logs", "Print the log of a run, and follow it while the run is active."),
    "metrics": ("metrics", "How much processor, memory and GPU a run uses."),
    "offer": ("offer", "Machines that could be had now, cheapest first."),
    "preset": ("unbuilt", "Presets for serving models (not available yet)."),
    "project": ("project", "The servers and projects that this machine knows."),
    "ps": ("ps", "List runs."),
    "run": ("run", "One run in full."),
    "secret": ("secret", "Secrets that runs can use."),
    "server": ("server", "Start the control plane on this machine."),
    "stop": ("stop", "Stop runs."),
    "volume": ("unbuilt", "Network volumes (not available yet)."),
}
COMPLETE = "_DSTACK_COMPLETE"
HIDDEN = {"pool": "pool", "destroy": "delete"}  # older words; they work, and say today's


class LazyGroup(Group):
    """The root: knows every group's name and line, imports only the one that is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(GROUPS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        module = GROUPS[cmd_name][0] if cmd_name in GROUPS else HIDDEN.get(cmd_name)
        if module is None:
            return None
        loaded = importlib.import_module(f"cli.commands.{module}")
        found = loaded.apps[cmd_name] if module == "unbuilt" else loaded.app
        return typer.main.get_command(found)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        from typer._click.shell_completion import CompletionItem

        return [CompletionItem(name, help=line) for name, (_, line) in GROUPS.items() if name.startswith(incomplete)]

    def lines(self) -> list[tuple[str, str]]:
        return [(name, line) for name, (_, line) in GROUPS.items()]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if name not in GROUPS and name not in HIDDEN and not name.startswith("-"):
            near = difflib.get_close_matches(name, GROUPS, 2)
            guess = f" Did you mean {' or '.join(near)}?" if near else " `dstack --help` lists them all."
            ctx.fail(f"There is no command {name!r}.{guess}")
        return super().resolve_command(ctx, args)


app = new_group(
    "Run GPU and CPU workloads on your own machines and clouds.\n\n"
    "Write what you want into a file, for example `train.dstack.yml`, and apply it:\n\n"
    "\b\n  dstack apply -f train.dstack.yml\n  dstack ps",
    cls=LazyGroup,
    invoke_without_command=True,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(version("dstack-serverless"))
        except PackageNotFoundError:
            typer.echo(f"{written_version()} (a checkout that isn't installed)")
        raise typer.Exit


def written_version() -> str:
    import tomllib

    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text)["project"]["version"])


@app.callback()
def root(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("-v", "--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if not isinstance(ctx.obj, Terminal):
        ctx.obj = Terminal()
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def invoke(args: list[str], terminal: Terminal) -> int:
    """Runs one command line and returns its exit code."""
    try:
        typer.main.get_command(app).main(args, prog_name="dstack", obj=terminal)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    except DstackError as error:
        terminal.warn(_error_text(error, terminal))
        return 2 if isinstance(error, WrongFlag) else 1
    return 0


def _error_text(error: DstackError, terminal: Terminal) -> str:
    if isinstance(error, Invalid):
        from cli.problems import render_problems

        text = render_problems(error, terminal.cwd)
    else:
        text = error.message + (f"\n{error.hint}" if error.hint else "")
    head, _, rest = text.partition("\n")
    return paint(head, "bad", terminal.colour) + (f"\n{rest}" if rest else "")


def main() -> None:
    """The console script."""
    terminal = Terminal()
    if COMPLETE in terminal.env:  # a shell asks what could come next
        from typer._completion_classes import completion_init

        completion_init()
    sys.exit(invoke(sys.argv[1:], terminal))


if __name__ == "__main__":
    main()
