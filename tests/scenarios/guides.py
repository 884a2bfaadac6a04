"""The guides as scenarios: a page's files are written, its commands typed, and what it shows is what came.

A fenced block with a file's name behind the language is that file; a `console` block is commands with their output.
`<!-- wait … -->` is what a reader does by looking twice: it waits, as in a scenario. Times and ids may differ.

    python -m tests.scenarios.guides      writes the outputs anew, to be read before they are committed
"""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.agent import git_hosts
from tests.harness.server import ROOT, Server
from tests.scenarios.script import Stage, Step, normalise, run_step
from tests.scenarios.stages import Real, Virtual
from tests.scenarios.texts import cloud_of
from tests.world.embedded import EmbeddedSite

HOSTS = ROOT / "docs" / "guides" / "on-prem.md"  # takes real hosts: `tests/e2e/onprem` plays it
AWS = {ROOT / "docs" / "guides" / f"{name}.md" for name in ("aws", "aws-costs")}  # `tests/infra/test_guide.py`
SIGN_ON = ROOT / "docs" / "guides" / "sign-on.md"  # takes a provider: `tests/e2e/test_sign_on_real.py`
GATEWAYS = ROOT / "docs" / "guides" / "gateways.md"  # takes nginx: `tests/e2e/test_gateways_guide_real.py`
PAGES = sorted({*(ROOT / "docs" / "guides").glob("*.md")} - {HOSTS, SIGN_ON, GATEWAYS} - AWS)
REAL = ("attach", "dev-environments", "repositories", "services", "tasks")  # what jobs do there takes a real shell
FLAGS = ("--fake-cloud", "--no-local-fleet")

_PART = re.compile(r"```(?P<language>\w+)(?: (?P<name>\S+))?\n(?P<body>.*?)```|<!-- (?P<wait>wait .*?) -->", re.DOTALL)
_COMMAND = re.compile(r"(?m)^\$ (.*)\n((?:(?!\$ ).*\n)*)")


@dataclass(frozen=True)
class Shown:
    """A command of the page, its output there, and its output now."""

    command: str
    written: str
    now: str


@contextlib.contextmanager
def stage_for(path: Path, folder: Path) -> Iterator[Stage]:
    """Where a page is played: on the world's time, or for real."""
    home, project = folder / "home", f"guide-{path.stem}"
    home.mkdir()
    if path.stem not in REAL:
        site = EmbeddedSite(project, folder / "server", cloud_of(path.stem))
        with contextlib.closing(site):
            yield Virtual(site, home, project)
        return
    with contextlib.ExitStack() as stack:
        env = stack.enter_context(_git_hosts()) if path.stem == "repositories" else {}
        server = stack.enter_context(contextlib.closing(Server(folder / "server", flags=FLAGS, env=env)))
        server.home.mkdir()
        yield Real(server.start(), home, project)


@contextlib.contextmanager
def _git_hosts() -> Iterator[dict[str, str]]:
    """The hosts that the page clones from, and the variables with which they are seen."""
    with git_hosts.running() as host:
        host.commit("The first model", "train.py", 'print("one epoch")\n')
        git_hosts.git(host.work, "push", "-q", "origin", "main")
        yield host.far.variables


def play_page(path: Path, stage: Stage) -> tuple[str, list[Shown]]:
    """The page with the outputs of this control plane in it, and each command's output then and now."""
    shown: list[Shown] = []

    def part(found: re.Match[str]) -> str:
        if found["wait"]:
            run_step(Step("command", found["wait"]), stage)
        elif found["name"]:
            run_step(Step("file", found["name"], found["body"]), stage)
        elif found["language"] == "console":
            commands = [Shown(line, said, _typed(line, stage)) for line, said in _COMMAND.findall(found["body"])]
            shown.extend(commands)
            return "```console\n" + "".join(f"$ {each.command}\n{each.now}" for each in commands) + "```"
        return found[0]

    return _PART.sub(part, path.read_text()), shown


def _typed(line: str, stage: Stage) -> str:
    if line.startswith("git "):
        subprocess.run(shlex.split(line), cwd=stage.home, env=stage.environment, check=True)
        return ""
    if not line.startswith("dstack "):
        run_step(Step("command", line), stage)
        return ""
    command, _, filter_ = line.removeprefix("dstack ").partition(" | ")
    lines = _filtered(stage.dstack(shlex.split(command))[0].strip("\n").split("\n"), filter_)
    text = "\n".join(line.rstrip() for line in lines).replace(str(stage.home), "~")
    return f"{text}\n" if text else ""


def _filtered(lines: list[str], filter_: str) -> list[str]:
    program, _, argument = filter_.partition(" ")
    if program == "grep":
        return [line for line in lines if argument in line]
    if program in ("head", "tail"):
        count = int(argument.removeprefix("-"))
        return lines[:count] if program == "head" else lines[-count:]
    return lines


_STAGE = re.compile(r"(?m)^(submitted|(submitted|provisioning|pulling.*|running|terminating)( on |: ).*)\n")


def same(one: Shown, home: Path) -> bool:
    """Is it the same but for what differs from run to run? A stage that went by unseen is no difference."""
    written, now = (normalise(_STAGE.sub("", text), home) for text in (one.written, one.now))
    return written == now


def check(path: Path, folder: Path) -> None:
    with stage_for(path, folder) as stage:
        compare(path, stage)


def compare(path: Path, stage: Stage) -> None:
    """The page shows what happens on this stage."""
    _, shown = play_page(path, stage)
    odd = [
        f"$ {one.command}\n--- shown\n{one.written}--- seen\n{one.now}" for one in shown if not same(one, stage.home)
    ]
    assert shown and not odd, "\n".join(odd)


def main() -> None:
    for path in PAGES:
        with tempfile.TemporaryDirectory() as folder, stage_for(path, Path(folder)) as stage:
            text, _ = play_page(path, stage)
        path.write_text(text)


if __name__ == "__main__":
    main()
