"""What a scenario script is, and how it is run.

A script is text that reads like a terminal. `$ dstack …` runs the CLI as a user whose default project bears the
script's name; the lines below it are its output, with whatever differs from run to run replaced (`normalise`).
`[exit N]` ends an output whose status isn't 0. `<<< NAME` … `>>>` writes a file into the user's folder. `## …` is a
remark. The rest is what a person would do beside the terminal:

    $ dstack … | tail -N            the last N lines of the output are enough
    $ wait run NAME STATUS          until the run is so
    $ wait fleet NAME STATUS N      until N instances of the fleet are so
    $ wait replicas NAME N          until the service has N replicas, all of its version and ready
    $ wait log NAME TEXT            until the run has said that
    $ wait event TEXT               until the history says that
    $ export NAME=VALUE             for the commands that follow; `$(dstack …)` is what that prints
    $ cloud JSON                    how the simulated cloud behaves from here on (`Script` of the fake cloud)
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

NEWLINE = "\n"
_STATE_COMMANDS = (["dstack", "ps", "-a", "-v"], ["dstack", "event"])  # shown where a scenario gets stuck


@dataclass(frozen=True)
class Step:
    kind: str  # remark, file, command
    text: str  # the remark, the command line, or the file's name
    body: str = ""  # the output, or the file's content


def parse(text: str) -> list[Step]:
    steps: list[Step] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            steps.append(Step("command", line[2:]))
        elif line.startswith("<<< "):
            steps.append(Step("file", line[4:], "".join(f"{inner}\n" for inner in _until_end(lines))))
        elif line.startswith("## "):
            steps.append(Step("remark", line))
        elif steps and steps[-1].kind == "command":
            steps[-1] = Step("command", steps[-1].text, f"{steps[-1].body}{line}\n")
        elif line:
            raise ValueError(f"a line that belongs to nothing: {line!r}")
    return [Step(step.kind, step.text, step.body if step.kind == "file" else step.body.strip("\n")) for step in steps]


def _until_end(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if line == ">>>":
            return
        yield line
    raise ValueError("a file without its >>>")


def render(steps: list[Step]) -> str:
    return "\n\n".join(_rendered(step) for step in steps) + "\n"


def _rendered(step: Step) -> str:
    if step.kind == "file":
        return f"<<< {step.text}\n{step.body}>>>"
    return step.text if step.kind == "remark" else f"$ {step.text}\n{step.body}".rstrip("\n")


class Stage(Protocol):
    """Where a script is played: a control plane, and beside it a user whose default project bears the script's name."""

    home: Path
    exported: dict[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """What the user's other programs see."""

    def dstack(self, args: list[str]) -> tuple[str, int]:
        """What the command prints on either stream, and its status."""

    def streams(self, args: list[str]) -> tuple[str, str]:
        """The same apart: what a pipe gets, and what goes past it."""

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        """The API's answer, in the user's project."""

    def events(self) -> list[dict[str, Any]]:
        """The latest of the whole history."""

    def behave(self, script: str) -> None:
        """How the simulated cloud behaves from here on."""

    def until(self, what: str, check: Callable[[], bool]) -> None:
        """Wait for it; fail the test when it doesn't come."""


def play(steps: list[Step], stage: Stage) -> list[Step]:
    """The same script with the outputs that this control plane gave."""
    done: list[Step] = []
    for step in steps:
        try:
            done.append(Step(step.kind, step.text, run_step(step, stage)))
        except AssertionError as error:
            error.add_note(render([step for step in done if step.kind != "file"]) + state_shown(stage))
            raise
    return done


def state_shown(stage: Stage) -> str:
    """What there is where a script got stuck."""
    return render([Step("command", " ".join(args), _shown(stage, args[1:])) for args in _STATE_COMMANDS])


def run_step(step: Step, stage: Stage) -> str:
    if step.kind == "file":
        path = stage.home / step.text
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(step.body)
    if step.kind != "command":
        return step.body
    verb, _, rest = step.text.partition(" ")
    if verb == "dstack":
        command, _, tail = rest.partition(" | tail -")
        return _shown(stage, shlex.split(command), int(tail or 0))
    if verb == "cloud":
        stage.behave(rest)
    elif verb == "export":
        name, _, value = rest.partition("=")
        inner = re.fullmatch(r"\$\(dstack (.*)\)", value)
        said = stage.streams(shlex.split(inner[1]))[0].strip() if inner else value
        stage.exported[name] = said.replace("~", str(stage.home))
    elif verb == "wait":
        stage.until(step.text, lambda: _so(stage, rest))
    else:
        raise ValueError(f"a scenario runs dstack, not {verb}")
    return ""


def _shown(stage: Stage, args: list[str], tail: int = 0) -> str:
    """The output, or its last lines, without what differs from run to run; and the status where it isn't 0."""
    output, status = stage.dstack(args)
    shown = normalise(output, stage.home).split("\n")[-tail:]
    return f"{NEWLINE.join(shown)}{f'{NEWLINE}[exit {status}]' if status else ''}".strip("\n")


def _so(stage: Stage, wanted: str) -> bool:
    noun, name, *rest = wanted.split(" ", 2)
    if noun == "run":
        return bool(stage.ask("runs/get", {"run_name": name})["status"] == rest[0])
    if noun == "replicas":
        return _ready(stage.ask("runs/get", {"run_name": name})) == [True] * int(rest[0])
    if noun == "log":
        return rest[0] in stage.dstack(["logs", name, "--no-follow"])[0]
    if noun == "event":
        return any(" ".join([name, *rest]) in event["message"] for event in stage.events())
    status, count = rest[0].split()
    fleet = next((fleet for fleet in stage.ask("fleets/list", {}) if fleet["name"] == name), {"instances": []})
    return sum(one["status"] == status for one in fleet["instances"]) == int(count)


def _ready(run: Any) -> list[bool]:
    """For each live replica of a service, whether it is of the run's version and passes its probes."""
    found = []
    for job in run["jobs"]:
        last, probes = job["job_submissions"][-1], job["job_spec"]["probes"]
        streaks = [probe["success_streak"] for probe in last["probes"]]
        passes = len(streaks) == len(probes) and all(
            a >= b["ready_after"] for a, b in zip(streaks, probes, strict=True)
        )
        current = last["deployment_num"] == run["deployment_num"] and last["status"] == "running"
        if last["finished_at"] is None:
            found.append(current and passes)
    return found


_CHANGING = (
    (re.compile(r"\bdstack_[\w.…-]+"), "<token>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"), "<id>"),
    (re.compile(r"(?m)(\bnow(?= *$|  )|yesterday|\d+ (sec|secs|min|mins|hour|hours) ago\b)"), "<ago>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?"), "<time>"),
    (re.compile(r"\bafter \d+ s\b(, \$[\d.]+)?"), "after <n> s"),
    (re.compile(r"\bvm-[0-9a-f]{8}-\d+"), "<machine>"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "<url>"),
)


def normalise(text: str, home: Path) -> str:
    """What differs from run to run, out; runs of blanks left by it, squeezed."""
    text = text.replace(str(home), "~")
    for pattern, replacement in _CHANGING:
        text = pattern.sub(replacement, text)
    lines = [re.sub(r"(?<=\S) {2,}", "  ", line).rstrip() for line in text.splitlines()]
    return "\n".join(lines).strip("\n")
