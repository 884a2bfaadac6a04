"""Draws `docs/terminal.svg`, the README's picture, from a session that really takes place: `make picture`.

A server with the simulated cloud is started in a home of its own, and given a fleet. Then each command of `SESSION` is
run by a shell on a terminal of its own, as a person would type it, and what is on that terminal's screen in the end is
drawn. Times, durations and costs are those of the day; everything else is the same each time, and a test says so
(`tests/test_picture_real.py`).
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tests.harness.server import Server, until

PICTURE = Path(__file__).with_suffix(".svg")
COLUMNS = 96
FILES = {
    "fleet.dstack.yml": "type: fleet\nname: cloud\nnodes: 0..2\nidle_duration: 2s\n",
    "train.dstack.yml": """\
type: task
name: train
commands:
  - echo "Training on $DSTACK_GPUS_NUM GPU"
  - for epoch in 1 2 3; do echo "epoch $epoch"; sleep 0.5; done
resources:
  gpu: H100
""",
}


class Command(NamedTuple):
    line: str
    after: str = ""  # the event that a person would wait for before typing it


SESSION = (
    Command("cat train.dstack.yml"),
    Command("dstack apply -y -f train.dstack.yml"),
    Command("dstack event --within-fleet cloud | tail -3", after="terminating → terminated"),
    Command("echo n | dstack apply -f train.dstack.yml --gpu H100:16 | tail -1"),
)

# A window with a background of its own, so that it reads the same on a light page and on a dark one.
THEME = TerminalTheme(
    background=(22, 27, 34),
    foreground=(225, 230, 236),
    normal=[
        *((110, 118, 129), (255, 123, 114), (86, 211, 100), (227, 179, 65)),
        *((121, 192, 255), (210, 168, 255), (86, 212, 221), (225, 230, 236)),
    ],
)
# Rich's own format without the fonts that it fetches from a host: each reader's machine has one of these.
FORMAT = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>A terminal: a task is planned, run on a machine that is bought for it, and the machine is released</title>
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px;
  line-height: {line_height}px;
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="dstack-picture-") as folder:
        lines = play(Path(folder))
    PICTURE.write_text(draw(lines), encoding="utf-8")


# --- the session ------------------------------------------------------------------------------------------------------


def play(home: Path) -> list[str]:
    """The lines of the session, with their colours."""
    with served(home) as server:
        shown: list[str] = []
        for command in SESSION:
            wait(command.after, server)
            shown += [*([""] if shown else []), f"\x1b[2m$\x1b[0m \x1b[1m{command.line}\x1b[0m"]
            shown += screen(run(command.line, server))
        return shown


def wait(event: str, server: Server) -> None:
    if event:
        until(event, lambda: event in server.cli("event"))


@contextmanager
def served(home: Path) -> Iterator[Server]:
    flags = ("--fake-cloud", "--no-local-fleet")
    server = Server(home, flags=flags, env={"DSTACK_AGENT_RUNTIME": "process", "TERM": "xterm-256color"})
    for name, text in FILES.items():
        (home / name).write_text(text)
    try:
        server.start()
        server.cli("apply", "-y", "-f", "fleet.dstack.yml")
        yield server
    finally:
        server.close()


def run(line: str, server: Server) -> str:
    """All that a shell with this command writes to a terminal."""
    environment = server.environment()
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    master, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (50, COLUMNS))
    shell = subprocess.Popen(
        ["sh", "-c", line],
        cwd=server.home,
        env=environment,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    written = b"".join(_chunks(master)).decode()
    os.close(master)
    if shell.wait():
        raise SystemExit(f"`{line}` ended with status {shell.returncode}:\n{written}")
    return written


def _chunks(master: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(master, 65_536)
        except OSError:  # so Linux reports that nobody has the terminal open any more
            return
        if not chunk:
            return
        yield chunk


_PIECE = re.compile(r"\r|\n|\x1b\[\??[\d;]*[A-Za-z]|[^\r\n\x1b]+")


def screen(written: str) -> list[str]:
    """What is left of it on a screen: a spinner goes back to the beginning of its line, erases it and writes anew."""
    lines, row, fresh = [""], 0, True
    for piece in _PIECE.findall(written):
        if piece == "\r":
            fresh = True
        elif piece == "\n":
            row, fresh = row + 1, True
            lines += [""] * (row == len(lines))
        elif piece == "\x1b[2K":
            lines[row] = ""
        elif piece == "\x1b[1A":
            row -= 1
        elif piece.startswith("\x1b[?"):
            continue  # the cursor, shown or hidden
        elif piece.startswith("\x1b") and not piece.endswith("m"):
            raise ValueError(f"the terminal was sent {piece!r}, which isn't drawn yet")
        else:
            lines[row] = piece if fresh else lines[row] + piece
            fresh = False
    while lines and not lines[-1]:
        lines.pop()
    return lines


# --- the picture ------------------------------------------------------------------------------------------------------


def draw(lines: list[str]) -> str:
    """The lines as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="standard")
    for line in lines:
        console.print(Text.from_ansi(line, end=""), soft_wrap=True)
    drawn = console.export_svg(title="", theme=THEME, code_format=FORMAT, unique_id="session")
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


if __name__ == "__main__":
    main()
