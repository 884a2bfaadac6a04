"""What a scenario script is, and how it is run.

A script is text. `$ dstack …` runs the CLI as a user of the server; the lines below it are its output, with whatever
differs from run to run replaced (`normalise`). `[exit N]` ends an output whose status isn't 0. `<<< NAME` … `>>>` writes
a file into the user's folder. `# …` is a remark. `$ wait run NAME STATUS` and `$ wait fleet NAME STATUS N` wait for a
state.

`UPDATE_GOLDEN=1` writes the outputs anew, to be read before they are committed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.harness.server import until


class Root(Protocol):
    """A control plane under test, with a user's folder beside it."""

    home: Path

    def cli(self, *args: str, check: bool = True) -> str: ...

    def call(self, path: str, body: object = None) -> object: ...


@dataclass(frozen=True)
class Step:
    kind: str  # remark, file, command
    text: str  # the remark, the command line, or the file's name
    body: str = ""  # the file's content, or the expected output


def parse(text: str) -> list[Step]:
    steps: list[Step] = []
    lines = iter(text.splitlines())
    output: list[str] = []
    command = ""

    def flush() -> None:
        nonlocal command
        if command:
            steps.append(Step("command", command, "\n".join(output).strip("\n")))
        command = ""
        output.clear()

    for line in lines:
        if line.startswith("$ "):
            flush()
            command = line[2:]
        elif line.startswith("<<< "):
            flush()
            body = []
            for inner in lines:
                if inner == ">>>":
                    break
                body.append(inner)
            steps.append(Step("file", line[4:], "\n".join(body) + "\n"))
        elif line.startswith("# ") and not command:
            steps.append(Step("remark", line))
        else:
            output.append(line)
    flush()
    return steps


def render(steps: list[Step]) -> str:
    parts = []
    for step in steps:
        if step.kind == "remark":
            parts.append(step.text)
        elif step.kind == "file":
            parts.append(f"<<< {step.text}\n{step.body}>>>")
        else:
            parts.append(f"$ {step.text}\n{step.body}".rstrip("\n"))
    return "\n\n".join(parts) + "\n"


def run(steps: list[Step], root: Root) -> list[Step]:
    """The same script with the outputs that this root gave."""
    done = []
    for step in steps:
        if step.kind == "file":
            (root.home / step.text).write_text(step.body)
            done.append(step)
        elif step.kind == "command":
            done.append(Step("command", step.text, _output(step.text, root)))
        else:
            done.append(step)
    return done


def _output(command: str, root: Root) -> str:
    words = command.split()
    if words[:2] == ["wait", "run"]:
        until(f"the run {words[2]} to be {words[3]}", lambda: _run_status(root, words[2]) == words[3], seconds=60)
        return ""
    if words[:2] == ["wait", "fleet"]:
        wanted = int(words[4])
        until(f"{wanted} {words[3]} in {words[2]}", lambda: _count(root, words[2], words[3]) == wanted, seconds=90)
        return ""
    assert words[0] == "dstack", f"a scenario runs dstack, not {words[0]}"
    try:
        return normalise(root.cli(*words[1:]), root)
    except AssertionError as error:
        found = re.match(r"dstack .* ended with (\d+):\n", str(error))
        if not found:
            raise
        text = normalise(str(error)[found.end() :], root)
        return f"{text}\n[exit {found[1]}]".strip("\n")


def _run_status(root: Root, name: str) -> str:
    run = root.call("/api/project/main/runs/get", {"run_name": name})
    assert isinstance(run, dict)
    return str(run["status"])


def _count(root: Root, name: str, status: str) -> int:
    fleets = root.call("/api/project/main/fleets/list", {})
    assert isinstance(fleets, list)
    return sum(i["status"] == status for fleet in fleets if fleet["name"] == name for i in fleet["instances"])


_CHANGING = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"), "<id>"),
    (re.compile(r"\b(now|\d+ (sec|secs|min|mins|hour|hours) ago)\b"), "<ago>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?"), "<time>"),
    (re.compile(r"\b\d\d:\d\d(:\d\d)?\b"), "<time>"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "<url>"),
)


def normalise(text: str, root: Root) -> str:
    """What differs from run to run, out; runs of blanks left by it, squeezed."""
    text = text.replace(str(root.home), "~")
    for pattern, word in _CHANGING:
        text = pattern.sub(word, text)
    lines = [re.sub(r" {2,}", "  ", line).rstrip() for line in text.splitlines()]
    return "\n".join(lines).strip("\n")
