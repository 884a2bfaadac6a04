"""The reference of commands as Markdown, from the commands themselves: `python -m cli.reference` prints it.

A test compares docs/reference/cli.md with it, so the page can't say what the program doesn't.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from cli.main import GROUPS, HIDDEN, app

EXIT_CODES = (  # code, what it means, when
    ("0", "done", "The command did what it was asked; a followed run is done."),
    ("0", "refused by the person", "A question was answered with n; nothing was changed."),
    ("0", "left running", "Ctrl-C ended the looking on (`apply -y`, `attach`, `logs`, `--watch`); the run goes on."),
    ("1", "an error", "Said on standard error, with what to do about it."),
    ("1", "no exit status", "A followed run was stopped, or ended without its job exiting by itself."),
    ("2", "a wrong command line", "An unknown command or flag, a value of the wrong kind, flags that contradict."),
    ("1 to 255", "the job's", "`apply` and `attach`: what the job of a failed run exited with."),
)
_ROWS = "\n".join(f"| {code} | {name} | {when} |" for code, name, when in EXIT_CODES)
HEAD = f"""\
# Commands

Written by `python -m cli.reference`; `dstack COMMAND --help` says the same. What `--json` prints: [json.md](json.md).

| exit code | | |
|---|---|---|
{_ROWS}

Output proper goes to standard output, errors and progress to standard error. Piped output has no colour, no spinner,
and is never cut; `NO_COLOR` turns colour off on a terminal too.

A command speaks to the server of `DSTACK_SERVER_URL` with `DSTACK_TOKEN` where both are set (then `--project` or
`DSTACK_PROJECT` names the project), else to that of the project in `~/.dstack/config.yml`: the one of `--project` or
`DSTACK_PROJECT`, or the default one. `DSTACK_TOKEN` alone replaces that entry's token.
"""


def reference() -> str:
    root: Any = typer.main.get_command(app)
    return "\n".join(
        [HEAD, *(line for name in GROUPS for line in _command(root.get_command(None, name), f"dstack {name}"))]
    )


def leaves(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with its path; those of older words too."""
    root: Any = command or typer.main.get_command(app)
    names = list(getattr(root, "commands", {})) if command else [*GROUPS, *HIDDEN]
    if not names:
        yield path, root
    for name in names:
        yield from leaves(root.get_command(None, name), (*path, name))


def _command(command: Any, path: str) -> Iterator[str]:
    context = typer.Context(command, info_name=path)
    yield f"{'#' * (len(path.split()))} {path}\n"
    yield inspect.cleandoc(command.help or "").replace("\b\n", "") + "\n"
    children = getattr(command, "commands", {})
    yield "```\n" + command.get_usage(context).removeprefix("Usage: ") + "\n```\n"
    rows = [row for param in command.get_params(context) if (row := param.get_help_record(context))]
    yield "| | |\n|---|---|"
    for flag, text in rows:
        yield f"| `{_cell(flag)}` | {_cell(text)} |"
    yield ""
    if command.epilog:
        lines = [line.strip() for line in command.epilog.splitlines() if line.strip().startswith(("dstack", "source"))]
        yield "```\n" + "\n".join(lines) + "\n```\n"
    for name in children:
        yield from _command(children[name], f"{path} {name}")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    print(reference(), end="")
