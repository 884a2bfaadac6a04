"""The page of what `--json` prints: the list of `cli.shapes`, with the keys that were recorded from real answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from cli.main import HIDDEN
from cli.reference import leaves
from cli.shapes import COMMANDS, NOUNS, Shape
from tests.cli.shapes import recorded

PAGE = Path(__file__).parent / "reference" / "json.md"
HEAD = """\
# What `--json` prints

Each document has a shape, and each shape a version. A version rises when a key goes or says something else. Keys may
come within a version, and a value that was always null may come to say something: read what you know, pass over the
rest. Any value may be null where it isn't known. A key below stands with all the kinds of value that it was seen with;
`[]` is each item of a list.

Where another client of this API prints JSON already, the keys here are the same, and the version stands on this page
alone. Documents of our own begin with the version, under `shape`.

`configuration`, `profile`, `env`, `tags` and `ports` are in the language of the [configuration](configuration.md).
"""


def page() -> str:
    known = recorded()
    lines = [HEAD, "## Commands\n"]
    for name, shape in COMMANDS.items():
        lines += _section(f"dstack {name} --json", shape, known[name]["keys"])
    lines.append("## What stands in them\n")
    for name, shape in NOUNS.items():
        lines += _section(name, shape, known[name]["keys"])
    lines += ["## Commands without --json\n", *_without(), ""]
    return "\n".join(lines)


def _section(title: str, shape: Shape, keys: dict[str, str]) -> Iterator[str]:
    yield f"### {title}\n"
    yield f"Version {shape.version}. {shape.about}\n"
    if list(keys) == [""]:
        yield f"The whole document is a {_links(keys['']).replace(' | ', ' or a ')}.\n"
        return
    yield "| key | value |\n|---|---|"
    yield from (f"| `{path}` | {_links(kinds).replace(' | ', ', ')} |" for path, kinds in keys.items())
    yield ""


def _links(kinds: str) -> str:
    return re.sub(r"[A-Z]\w+", lambda noun: f"[{noun[0]}](#{noun[0].lower()})", kinds)


def _without() -> Iterator[str]:
    """Why, as their help says."""
    for path, command in leaves():
        why = re.search(r"No --json: (.*?)\.(?:\s|$)", " ".join((command.help or "").split()))
        if path[0] not in HIDDEN and why:
            yield f"- `dstack {' '.join(path)}`: {why[1]}."
