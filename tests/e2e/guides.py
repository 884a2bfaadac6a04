"""The guides as scenarios: a page's files are written, its commands typed, and what it shows is what came.

A fenced block with a file's name behind the language is that file; a `console` block is commands with their output.
`<!-- wait … -->` is what a reader does by looking twice: it waits, as in a scenario. Times and ids may differ.

    python -m tests.e2e.guides      writes the outputs anew, to be read before they are committed
"""

from __future__ import annotations

import re
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.harness.server import ROOT, Server
from tests.scenarios.script import Step, User, normalise, run_step

PAGES = sorted((ROOT / "docs" / "guides").glob("*.md"))
FLAGS = ("--fake-cloud", "--no-local-fleet")

_PART = re.compile(r"```(?P<language>\w+)(?: (?P<name>\S+))?\n(?P<body>.*?)```|<!-- (?P<wait>wait .*?) -->", re.DOTALL)
_COMMAND = re.compile(r"(?m)^\$ (.*)\n((?:(?!\$ ).*\n)*)")


@dataclass(frozen=True)
class Shown:
    """A command of the page, its output there, and its output now."""

    command: str
    written: str
    now: str


def play_page(path: Path, server: Server, home: Path) -> tuple[str, list[Shown]]:
    """The page with the outputs of this control plane in it, and each command's output then and now."""
    user = User(server, home, f"guide-{path.stem}")
    user.arrive()
    shown: list[Shown] = []

    def part(found: re.Match[str]) -> str:
        if found["wait"]:
            run_step(Step("command", found["wait"]), user)
        elif found["name"]:
            run_step(Step("file", found["name"], found["body"]), user)
        elif found["language"] == "console":
            commands = [Shown(line, said, _typed(line, user)) for line, said in _COMMAND.findall(found["body"])]
            shown.extend(commands)
            return "```console\n" + "".join(f"$ {each.command}\n{each.now}" for each in commands) + "```"
        return found[0]

    return _PART.sub(part, path.read_text()), shown


def _typed(line: str, user: User) -> str:
    if not line.startswith("dstack "):
        run_step(Step("command", line), user)
        return ""
    command, _, filter_ = line.removeprefix("dstack ").partition(" | ")
    lines = _filtered(user.raw(shlex.split(command))[0].strip("\n").split("\n"), filter_)
    text = "\n".join(line.rstrip() for line in lines).replace(str(user.home), "~")
    return f"{text}\n" if text else ""


def _filtered(lines: list[str], filter_: str) -> list[str]:
    program, _, argument = filter_.partition(" ")
    if program == "grep":
        return [line for line in lines if argument in line]
    if program in ("head", "tail"):
        count = int(argument.removeprefix("-"))
        return lines[:count] if program == "head" else lines[-count:]
    return lines


_STAGE = re.compile(r"(?m)^(submitted|provisioning|pulling|running) on .*\n")


def same(one: Shown, user: User) -> bool:
    """Is it the same but for what differs from run to run? A stage that went by unseen is no difference."""
    written, now = (normalise(_STAGE.sub("", text), user) for text in (one.written, one.now))
    return written == now


def main() -> None:
    for path in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder) / "home"
            server = Server(Path(folder) / "server", flags=FLAGS)
            home.mkdir()
            server.home.mkdir()
            try:
                text, _ = play_page(path, server.start(), home)
            finally:
                server.close()
        path.write_text(text)


if __name__ == "__main__":
    main()
