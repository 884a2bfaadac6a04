"""The entry point `dstack`: finds the command group, and turns errors into text and an exit code.

A group is imported only when it is called: its line of help is repeated in `GROUPS`, and a test compares the two.
Exit codes: 0 done, 1 an error or a failed run, 2 a usage error, else the exit status of the followed job.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import ClickException

from chalicelib.errors import DstackError, Invalid, WrongFlag
from cli.screen.parameters import CommandGroup, new_group
from cli.screen.render import as_json, paint
from cli.screen.terminal import Terminal

if TYPE_CHECKING:
    from typer._click.core import Command, Context
    from typer._click.shell_completion import CompletionItem

    from cli.screen.parameters import Resolved

GROUPS: dict[str, tuple[str, str]] = {  # name: module under cli.commands, one line of help
    "apply": ("apply", "Create or change what a configuration file describes."),
    "attach": ("attach", "Connect to a run: SSH, its ports, its log."),
    "audit": ("audit", "Check the audit log that a server writes."),
    "automation": ("automation", "Store configurations for rules to apply, stop and delete."),
    "backend": ("backend", "Manage backends: the clouds that a project can use."),
    "completion": ("completion", "Print a script that completes commands and names in your shell."),
    "console": ("console", "Open the web console in your browser, signed in."),
    "delete": ("delete", "Delete what a configuration file describes."),
    "event": ("event", "Show what happened to runs, jobs, fleets and instances."),
    "export": ("export", "Share SSH fleets with other projects."),
    "fleet": ("fleet", "Manage fleets and their machines."),
    "gateway": ("gateway", "Manage gateways, which give services their own names."),
    "import": ("import_", "Fleets that other projects share with this one."),
    "init": ("init", "Set up this folder with an example configuration and an editor schema."),
    "login": ("login", "Sign on with an account, and add the projects you may use."),
    "logs": ("logs", "Print the log of a run, and follow it while the run is active."),
    "metrics": ("metrics", "Show a run's CPU, memory and GPU use."),
    "offer": ("offer", "List available machines, cheapest first."),
    "preset": ("preset", "Manage presets: measured ways to serve a model."),
    "project": ("project", "Manage the projects this machine knows, and their members."),
    "ps": ("ps", "List runs."),
    "run": ("run", "One run in full."),
    "scim": ("scim", "Let a company's directory make users and groups here, by SCIM."),
    "secret": ("secret", "Manage secrets for runs."),
    "server": ("server", "Start the control plane on this machine."),
    "service": ("service", "Show services, and manage access to them."),
    "stop": ("stop", "Stop runs."),
    "token": ("token", "Manage access tokens: for programs, with less than your rights, until they expire."),
    "user": ("user", "Manage the users of a server, and your own public keys."),
    "volume": ("volume", "Manage volumes: disks that outlive runs."),
}
INTERRUPTED = 130  # by Ctrl-C, unless the command handles it
ALWAYS = "dstack-serverless"  # the name of the command that no other package has
COMPLETE = "_DSTACK_COMPLETE"
HIDDEN = {"pool": "pool", "destroy": "delete"}  # older spellings, which work and print the current one


@cache
def _built(module: str, name: str) -> Command:
    """A group's command, cached: typer would parse every signature three times per command line."""
    loaded = importlib.import_module(f".commands.{module}", __package__)
    return typer.main.get_command(loaded.app)


class LazyGroup(CommandGroup):
    """The root group, which knows every group's name and help line, and imports only the one that is used."""

    def list_commands(self, ctx: Context) -> list[str]:
        return list(GROUPS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        module = GROUPS[cmd_name][0] if cmd_name in GROUPS else HIDDEN.get(cmd_name)
        if module is None:
            return None
        return _built(module, cmd_name)

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        from typer._click.shell_completion import CompletionItem

        return [CompletionItem(name, help=line) for name, (_, line) in GROUPS.items() if name.startswith(incomplete)]

    def lines(self) -> list[tuple[str, str]]:
        return [(name, line) for name, (_, line) in GROUPS.items()]

    def resolve_command(self, ctx: Context, args: list[str]) -> Resolved:
        name = args[0]
        if name not in GROUPS and name not in HIDDEN:
            self.refuse_unknown(ctx, name)
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

        from cli.connection.client import API_VERSION

        try:
            own, note = version("dstack-serverless"), ""
        except PackageNotFoundError:
            own, note = written_version(), "; a checkout that isn't installed"
        typer.echo(f"{own} (compatible with dstack {API_VERSION}{note})")
        if other := other_dstack():
            typer.echo(other)
        raise typer.Exit


def program() -> str:
    """The name that this was called by."""
    return ALWAYS if Path(sys.argv[0]).name == ALWAYS else "dstack"


def other_dstack() -> str:
    """What to know where the genuine dstack is installed, too: both packages have a command of this name."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        other = version("dstack")
    except PackageNotFoundError:
        return ""
    return f"dstack {other} is installed beside it. `dstack` is the one installed last; `{ALWAYS}` is always this one."


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


@cache
def _root() -> Command:
    return typer.main.get_command(app)


def invoke(args: list[str], terminal: Terminal) -> int:
    """Runs one command line and returns its exit code."""
    try:
        ended = _root().main(args, prog_name=program(), obj=terminal, standalone_mode=False)
        if ended == INTERRUPTED:
            return _failed(args, terminal, DstackError("Interrupted."), INTERRUPTED)
        return ended if isinstance(ended, int) else 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    except ClickException as error:  # an error in the command line
        error.show()
        return _failed(args, terminal, DstackError(error.format_message()), error.exit_code)
    except DstackError as error:
        terminal.warn(_error_text(error, terminal))
        return _failed(args, terminal, error, 2 if isinstance(error, WrongFlag) else 1)


def _failed(args: list[str], terminal: Terminal, error: DstackError, code: int) -> int:
    """Prints the error as JSON, too, if the command was to print JSON; returns the exit code."""
    options = args[: args.index("--")] if "--" in args else args
    if "--json" in options or "--format=json" in options or ("--format", "json") in pairwise(options):
        from cli.screen.problems import error_document

        terminal.print(as_json(error_document(error, code)))
    return code


def _error_text(error: DstackError, terminal: Terminal) -> str:
    if isinstance(error, Invalid):
        from cli.screen.problems import render_problems

        text = render_problems(error, terminal.cwd)
    else:
        text = error.message + (f"\n{error.hint}" if error.hint else "")
    head, _, following = text.partition("\n")
    return paint(head, "bad", terminal.colour) + (f"\n{following}" if following else "")


def main() -> None:
    """The console script."""
    try:
        terminal = Terminal()
    except FileNotFoundError:
        sys.exit("The folder that this shell is in has been deleted.\nGo to another one with `cd`.")
    if COMPLETE in terminal.env:  # a shell requests completions
        from typer._completion_classes import completion_init

        completion_init()
    sys.exit(invoke(sys.argv[1:], terminal))


if __name__ == "__main__":
    main()
