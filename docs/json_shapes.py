"""The page on `--json`: the list in `cli.screen.shapes`, with the keys recorded from real responses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from cli.main import HIDDEN
from cli.reference import leaves
from cli.screen.shapes import COMMANDS, ERRORS, NOUNS, Shape
from tests.cli.shapes import recorded

PAGE = Path(__file__).parent / "reference" / "json.md"
HEAD = """\
# What `--json` prints

Each document has a shape, and each shape a version. The version changes when a key is removed or changes its meaning.
Within a version, keys may be added and a value that was always null may become something else: ignore what you don't
know. Any value may be null if it isn't known. The tables list the types each key was seen with; `[]` is each item of a
list.

Where the genuine client prints the same document, the keys are the same and the version is given on this page only. Our
own documents start with their version, under `shape`.

A command that fails prints [an error](#errors) instead, and exits with another status than 0; the text for people is on
standard error.

`configuration`, `profile`, `env`, `tags` and `ports` follow the [configuration](configuration.md) reference.
"""


def page() -> str:
    known = recorded()
    lines = [HEAD, "## Commands\n"]
    for name, shape in COMMANDS.items():
        lines += _section(f"dstack {name} --json", shape, known[name]["keys"])
    lines.append("## Nested documents\n")
    for name, shape in NOUNS.items():
        lines += _section(name, shape, known[name]["keys"])
    lines.append("## Errors\n")
    for name, shape in ERRORS.items():
        lines += _section(name, shape, known[name]["keys"])
    lines += ["## Commands without --json\n", *_without(), ""]
    return "\n".join(lines)


def _section(title: str, shape: Shape, keys: dict[str, str]) -> Iterator[str]:
    yield f"### {title}\n"
    yield f"Version {shape.version}. {shape.summary}\n"
    if list(keys) == [""]:
        yield f"The whole document is a {_links(keys['']).replace(' | ', ' or a ')}.\n"
        return
    yield "| key | value |\n|---|---|"
    yield from (f"| `{path}` | {_links(kinds).replace(' | ', ', ')} |" for path, kinds in keys.items())
    yield ""


def _links(kinds: str) -> str:
    return re.sub(r"[A-Z]\w+", lambda noun: f"[{noun[0]}](#{noun[0].lower()})", kinds)


def _without() -> Iterator[str]:
    """The reason given in their help."""
    for path, command in leaves():
        why = re.search(r"No --json: (.*?)\.(?:\s|$)", " ".join((command.help or "").split()))
        if path[0] not in HIDDEN and why:
            yield f"- `dstack {' '.join(path)}`: {why[1]}."
