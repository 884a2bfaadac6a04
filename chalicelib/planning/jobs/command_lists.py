"""A job's commands, as one argv: each item of the list runs whole, in the same shell, until one fails.

Items are arguments of the shell and never become part of one text, so the grammar of one can't reach the next. The
program below keeps them in variables, since an item may set the shell's parameters, and evaluates one after the other.
What it takes care of:

* No item runs inside a construct of the program: no loop that `break` would leave, no function that `return` would end,
  no `||` in which `set -e` has no effect.
* All of it is parsed before the first item runs, so that aliases and functions of items don't change it.
* An interactive dash or busybox sh prompts for ever after an error, unless that happens under `command`, and after
  SIGINT, unless that is trapped. zsh has `builtin` for that.
* An interactive bash prints `exit` when it executes that, so after a failed item the program runs to its end instead.
* `set -x` shows only items: the steps between them are silent.
* The number of each item is appended to a file, if the agent names one, before the item begins. That is how the agent
  knows where a job ended, whether by `set -e`, by `exit` or in a program that replaced the shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from chalicelib.errors import Problem
from chalicelib.printable import printable

MOST = 1000  # items of a list; the shell parses the steps between them at once
LONGEST = 125 * 1024  # bytes of one argument of a program: Linux takes 131,071
FOREIGN = ("fish", "csh", "tcsh", "nu", "elvish", "xonsh", "pwsh")  # shells that have a language of their own
SHOWN = 60  # characters of a command that messages quote

# Runs before each item: ends the list if the previous item failed, else counts the next one.
_NEXT = r"""case ${_dstack_status:=$?} in
0) _dstack_status= _dstack_trace= _dstack_go=yes _dstack_number=$((_dstack_number+1))
case $- in *x*) \set +x; _dstack_trace="\\set -x; ";; esac
case $_dstack_file in ?*) "$_dstack_run" echo "$_dstack_number" >>"$_dstack_file" || :;; esac;;
*) \set +x;;
esac"""

_STEP = (
    r"""{ \\eval \"\$_dstack_next\"; } 2>/dev/null; """
    r"""case \$_dstack_go in yes) _dstack_go=; \"\$_dstack_run\" eval \"\$_dstack_trace\$_dstack_$_dstack_count\";; """
    r"""${_dstack_last}esac; """
)

DRIVER = rf"""_dstack_file=${{DSTACK_COMMAND_FILE-}} _dstack_run=command _dstack_all= _dstack_count=0
\unset DSTACK_COMMAND_FILE
case ${{ZSH_VERSION-}} in ?*) _dstack_run=builtin;; esac
case ${{BASH_VERSION-}}${{ZSH_VERSION-}} in "") \trap "exit 130" INT;; esac
_dstack_next='{_NEXT}'
for _dstack_item; do
_dstack_count=$((_dstack_count+1)) _dstack_last=
\eval "_dstack_$_dstack_count=\$_dstack_item"
case $_dstack_count in "$#") _dstack_last='*) (\exit "${{_dstack_status:-1}}") && :;; ';; esac
_dstack_all="$_dstack_all{_STEP}"
done
set --; \unset _dstack_item _dstack_last _dstack_count; _dstack_number=0 _dstack_status= _dstack_go=
\eval "$_dstack_all"
"""

_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")  # an odd number of backslashes


def argv(shell: str, items: Sequence[str]) -> list[str]:
    """The argv of a list of commands. The shell is interactive, so that it reads `~/.bashrc` and expands aliases."""
    return [shell, "-i", "-c", DRIVER, shell, *items]


def names(before: Sequence[str], commands: Sequence[str], after: Sequence[str]) -> list[str]:
    """A name for each item, for the message of a job that ends in it; empty for items that end with the job. No names
    if there is only one item."""
    if len(before) + len(commands) + len(after) < 2:
        return []
    of_commands = [f"command {number} (`{_begun(text)}`)" for number, text in enumerate(commands, 1)]
    return [*("the job's preparation" for _ in before), *of_commands, *("" for _ in after)]


def _begun(command: str) -> str:
    """The first line that isn't empty or a comment, shortened."""
    lines = (printable(line).strip() for line in command.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return first if len(first) <= SHOWN else f"{first[: SHOWN - 1]}…"


def unusable(path: str, commands: Sequence[str], *, arguments: bool = False) -> Iterator[Problem]:
    """Problems of lists and items that can't be passed to a shell. `arguments`: they are those of an entrypoint."""
    if len(commands) > MOST:
        text = f"a job runs at most {MOST} commands, and this list has {len(commands)}"
        hint = "move them into a script, and bring that along with `files:`"
        yield Problem(text, path=path, hint=hint, code="too-large")
    for at, command in enumerate(commands):
        yield from too_long(f"{path}.{at}", command, "a command")
        if not arguments and _CONTINUED.search(command):
            text = "it ends with a backslash, and no item goes on in the next"
            hint = "remove the backslash, or write all lines of the command in one item, after `|`"
            yield Problem(text, path=f"{path}.{at}", hint=hint)


def too_long(path: str, text: str, what: str) -> Iterator[Problem]:
    size = len(text.encode())
    if size > LONGEST:
        found = f"{what} has at most {LONGEST // 1024} KB, and this one has {-(-size // 1024)}"
        yield Problem(
            found, path=path, hint="move it into a file, and bring that along with `files:`", code="too-large"
        )
