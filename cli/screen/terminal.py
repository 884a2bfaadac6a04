"""The process that runs a command: screen, folder, environment and clock.

Commands get it as `ctx.obj`, so a test can pass another. Colour, width and progress are only for terminals; piped
output has none of them and is never truncated.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from chalicelib.errors import Refused
from chalicelib.printable import printable, printable_lines
from cli.screen.render import STYLES, paint, wrap

if TYPE_CHECKING:
    from cli.connection.client import Dial
    from cli.ssh.tunnel import OpenSsh

PAINT = re.compile(rf"(\x1b\[(?:{'|'.join(filter(None, STYLES.values()))}|0)m)")
BROWSER_STARTS = 2.0  # seconds
STANDARD_INPUT = "-"  # in place of a file or a value, which is then read from there


def _is_watched() -> bool:
    return sys.stdout.isatty()


def _browse(address: str) -> bool:
    """Opens a browser, in a thread: a text browser doesn't return until the user quits it. False: there is none."""
    import webbrowser
    from threading import Thread

    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    opening = Thread(target=webbrowser.open, args=(address,), daemon=True)
    opening.start()
    opening.join(BROWSER_STARTS)  # a command that ended at once would take it along
    return True


def _begin(arguments: Sequence[str], log: Path, descriptor: int) -> None:
    """Starts a module of ours as a process that outlives this one. It inherits the descriptor, and writes to `log`."""
    import subprocess

    # -P: a folder called `cli` in the working folder must not be imported.
    with log.open("ab") as written:
        subprocess.Popen(
            [sys.executable, "-P", "-m", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            pass_fds=(descriptor,),
            start_new_session=True,
        )


@dataclass(frozen=True)
class Terminal:
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    home: Path = field(default_factory=Path.home)
    cwd: Path = field(default_factory=Path.cwd)
    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    watched: bool = field(default_factory=_is_watched)  # standard output is a terminal
    columns: int | None = None  # the width of the screen; None: ask the process
    via: Dial | None = None  # connects to servers, like `client.dial`; None: over HTTP
    ssh: OpenSsh | None = None  # like `tunnel.Ssh`; None: this machine's
    browse: Callable[[str], bool] = _browse  # opens an address; False: there is no browser
    begin: Callable[[Sequence[str], Path, int], None] = _begin  # starts a process that goes on without this one

    @property
    def width(self) -> int | None:
        """The columns to fit into; None: unlimited."""
        if self.columns is not None:
            return self.columns
        return shutil.get_terminal_size((80, 24)).columns if self.watched else None

    @property
    def colour(self) -> bool:
        return self.watched and not self.env.get("NO_COLOR") and self.env.get("TERM") != "dumb"

    def print(self, text: str = "") -> None:
        typer.echo(_shown(text), color=self.colour)

    def dim(self, *lines: str) -> None:
        """Prints what only explains, broken at the width of the screen."""
        for line in lines:
            for piece in wrap(line, self.width or len(line)):
                self.print(paint(piece, "dim", self.colour))

    def warn(self, text: str) -> None:
        """Prints a line to standard error, for people."""
        typer.echo(_shown(text), err=True, color=self.colour)

    def write(self, data: bytes) -> None:
        """Writes raw bytes at once: the log of a job."""
        typer.echo(data, nl=False)

    def secret(self, text: str, flag: str) -> str:
        """The value of a flag; for `-`, the first line of standard input, which isn't in the process list."""
        if text != STANDARD_INPUT:
            return text
        line = sys.stdin.readline().strip()
        if not line:
            raise Refused(f"{flag} -: there is nothing on standard input.", hint="Give it as the first line.")
        return line

    def hidden(self, question: str) -> str:
        """A secret typed without echo; without a terminal, the first line of standard input."""
        if sys.stdin.isatty():
            import getpass

            try:
                return getpass.getpass(question)
            except EOFError:
                raise Refused(
                    "The input ended before the secret was given.", hint="Try again and type it, or pipe it in."
                ) from None
        return self.secret(STANDARD_INPUT, "The secret")

    def confirm(self, question: str, *, unattended: str = "Add -y to skip questions.") -> bool:
        """Asks the user until the answer is y or n."""
        while True:
            typer.echo(f"{printable(question)} [y/n]: ", nl=False)
            answer = sys.stdin.readline()
            if not answer:
                typer.echo()
                raise Refused("The input ended before the question was answered.", hint=unattended)
            if answer.strip().lower() in ("y", "yes"):
                return True
            if answer.strip().lower() in ("n", "no"):
                return False


def _shown(text: str) -> str:
    """The text with our own colours and no other control characters, since it may quote text of others."""
    return "".join(part if number % 2 else printable_lines(part) for number, part in enumerate(PAINT.split(text)))


def terminal(ctx: typer.Context) -> Terminal:
    """The terminal of this invocation."""
    found: object = ctx.find_root().obj
    assert isinstance(found, Terminal), "a command ran without its terminal"
    return found
