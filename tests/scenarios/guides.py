"""The guides as scenarios: a page is followed from its first line, in a home where nothing is yet, by the program as
pip installs it; and what it shows is what came.

The server is the one that the page starts: the line `dstack server …` stands above all else. A fenced block with a
file's name behind the language is that file; a `console` block is commands with their output, as they are on a screen:
of `dstack … | tail -2` the last two lines, after all that goes to standard error. `<!-- wait … -->` is what a reader
does by looking twice: it waits, as in a scenario. Times and ids may differ.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.agent import git_hosts
from tests.harness.installed import program
from tests.harness.server import ROOT, Server
from tests.scenarios.script import Stage, Step, normalise, run_step, state_shown
from tests.scenarios.stages import Real, Virtual
from tests.world.embedded import EmbeddedSite

HOSTS = ROOT / "docs" / "guides" / "on-prem.md"  # takes real hosts: `tests/e2e/onprem` plays it
AWS = {ROOT / "docs" / "guides" / f"{name}.md" for name in ("aws", "aws-costs")}  # `tests/infra/test_guide.py`
SIGN_ON = ROOT / "docs" / "guides" / "sign-on.md"  # takes a provider: `tests/e2e/test_sign_on_real.py`
API = ROOT / "docs" / "guides" / "api.md"  # speaks HTTP: `tests/api/v1/test_resources_real.py` plays it
WORKLOADS = ROOT / "docs" / "guides" / "workload-identity.md"  # takes a CI: `tests/e2e/test_workload_identity_real.py`
GATEWAYS = ROOT / "docs" / "guides" / "gateways.md"  # takes nginx: `tests/e2e/test_gateways_guide_real.py`
PRESETS = ROOT / "docs" / "guides" / "presets.md"  # takes a language model: `tests/e2e/test_presets_guide_real.py`
SDKS = {ROOT / "docs" / "guides" / f"{name}-sdk.md" for name in ("python", "typescript")}  # `tests/e2e/sdk` runs them
CLOUDS = {  # each takes its provider's fake: `tests/backends/<name>/test_guide.py`
    page
    for page in (ROOT / "docs" / "guides").glob("*.md")
    if any((ROOT / "tests" / "backends").glob(f"{page.stem}*/test_guide.py"))
}
TOUR = ROOT / "docs" / "tour.md"
SKILL = ROOT / "skills" / "dstack" / "SKILL.md"  # for coding agents
PAGES = sorted(
    {*(ROOT / "docs" / "guides").glob("*.md"), SKILL, TOUR}
    - {HOSTS, SIGN_ON, WORKLOADS, GATEWAYS, API, PRESETS}
    - AWS
    - CLOUDS
    - SDKS
)
SHELL = (
    "attach",
    "dev-environments",
    "repositories",
    "services",
    "tasks",
    "tour",
)  # what jobs do there takes a real shell
BOTH = " 2>&1"  # before a pipe that gets both streams
PLAIN = ("--fake-cloud", "--no-local-fleet")  # the servers that `Virtual` can be

_PART = re.compile(r"```(?P<language>\w+)(?: (?P<name>\S+))?\n(?P<body>.*?)```|<!-- (?P<wait>wait .*?) -->", re.DOTALL)
_COMMAND = re.compile(r"(?m)^\$ (.*)\n((?:(?!\$ ).*\n)*)")


@dataclass(frozen=True)
class Shown:
    """A command of the page, its output there, and its output now."""

    command: str
    written: str
    now: str


def server_of(path: Path) -> list[str]:
    """The flags of the server that the page starts, before any other command."""
    before = path.read_text().partition("```console")[0]
    found = re.search(r"(?m)^dstack server(.*)$", before)
    assert found, f"{path.name} starts no server before its first command"
    return shlex.split(found[1])


@contextlib.contextmanager
def virtual(path: Path, folder: Path) -> Iterator[Stage]:
    """The page's server on the world's time."""
    flags = server_of(path)
    assert tuple(flags[:2]) == PLAIN and flags[2::2] in ([], ["--fake-cloud-name"]), flags
    home = folder / "home"
    home.mkdir()
    with contextlib.closing(EmbeddedSite("main", folder / "server", *flags[3:])) as site:
        yield Virtual(site, home, "main")


@contextlib.contextmanager
def real(path: Path, folder: Path) -> Iterator[Stage]:
    """The page's server and its user, who share a home."""
    home = folder / "home"
    home.mkdir()
    with contextlib.ExitStack() as stack:
        env = stack.enter_context(_git_hosts()) if path.stem == "repositories" else {}
        server = Server(home, flags=tuple(server_of(path)), env=env, command=(str(program()),))
        stack.enter_context(contextlib.closing(server))
        yield Installed(server.start(), home, "main")


class Installed(Real):
    """By the program that pip installed, in the project that the server has written into its user's configuration."""

    def __post_init__(self) -> None:
        assert self.server.command, "it is installed"
        self.command = self.server.command


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
            commands = [
                Shown(line, shown_output, _typed(line, stage)) for line, shown_output in _COMMAND.findall(found["body"])
            ]
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
    if command.endswith(BOTH):
        lines = _filtered(stage.dstack(shlex.split(command.removesuffix(BOTH)))[0].splitlines(), filter_)
    elif filter_:
        out, err = stage.streams(shlex.split(command))
        lines = [*err.splitlines(), *_filtered(out.splitlines(), filter_)]
    else:
        lines = stage.dstack(shlex.split(command))[0].strip("\n").split("\n")
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


_STAGE = re.compile(
    r"(?m)^(submitted|(submitted|provisioning|pulling.*|running|terminating)( on |: ).*|\d+ of \d+ machines ready)\n"
)


def same(one: Shown, home: Path) -> bool:
    """Is it the same but for what differs from run to run? A stage that went by unseen is no difference."""
    written, now = (normalise(_STAGE.sub("", text), home) for text in (one.written, one.now))
    return written == now


def compare(path: Path, stage: Stage, *, renew: bool = False) -> None:
    """The page shows what happens on this stage, or comes to."""
    try:
        text, shown = play_page(path, stage)
    except AssertionError as error:
        error.add_note(state_shown(stage))
        raise
    if renew:
        path.write_text(text)
        return
    odd = [
        f"$ {one.command}\n--- shown\n{one.written}--- seen\n{one.now}" for one in shown if not same(one, stage.home)
    ]
    assert shown and not odd, "\n".join(odd)
