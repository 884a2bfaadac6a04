"""The page on `--json`: the types of what commands print, from the contract."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from chalicelib import contract
from cli.main import HIDDEN
from cli.reference import leaves
from docs.openapi.declared import Schemas, close_types

PAGE = Path(__file__).parent / "reference" / "json.md"
HEAD = """\
# What `--json` prints

Each document has a version, which changes when a key is removed or changes its meaning. Within a version, keys may be
added: ignore what you don't know. A key is always there, unless its description says that it may be absent.

Where the genuine client prints the same document, the keys are the same, and only this page says the version. Our own
documents start with their version, under `shape`. Most of what they contain are answers of [the API](api.md).

A command that fails prints [an error](#errors) instead, and exits with another status than 0; the text for people is on
standard error.

`configuration`, `profile`, `env`, `tags` and `ports` follow the [configuration](configuration.md) reference.
"""
# Types that have a section of their own; others are shown where they stand.
NOUNS = (
    "Run", "Job", "JobSpec", "Submission", "Fleet", "Instance", "Offer", "InstanceType", "RequiredResources", "Volume",
    "Gateway", "User", "Event", "Preset",
)  # fmt: skip
# The versions of nouns and of documents without `shape`, by the names of their types: 1, unless one is here.
VERSIONS: Mapping[str, int] = {}
WORDS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
Schema = Mapping[str, Any]


def page(versions: Mapping[str, int] = VERSIONS) -> str:
    lines = [HEAD, "## Commands\n"]
    for name, kind in contract.PRINTED.items():
        lines += Section(kind, versions).lines(f"dstack {name} --json")
    lines.append("## Nested documents\n")
    for name in NOUNS:
        lines += Section(getattr(contract, name), versions, within=name).lines(name)
    lines.append("## Errors\n")
    lines += Section(contract.ErrorDocument, versions).lines("error")
    lines += ["## Commands without --json\n", *_without(), ""]
    return "\n".join(lines)


@cache
def _schema_of(kind: Any) -> Schema:
    """Made once: it takes a hundred times as long as all else."""
    close_types(described=True)
    return TypeAdapter(kind).json_schema(schema_generator=Schemas)


class Section:
    def __init__(self, kind: Any, versions: Mapping[str, int], within: str = "") -> None:
        self._schema = _schema_of(kind)
        self._versions = versions
        self._within = within  # the noun that the section is about

    def lines(self, title: str) -> Iterator[str]:
        whole = self._resolved(self._schema)
        nouns = [name for name in map(_name, whole.get("anyOf", [self._schema])) if name in NOUNS]
        title_of = whole.get("title", "")
        yield f"### {title}\n"
        if "anyOf" in whole or (title_of in NOUNS and title_of != self._within):
            names = nouns or [title_of]
            yield f"The whole document is a {' or a '.join(_link(name) for name in names)}, and has its version.\n"
            return
        version = whole["properties"].get("shape", {}).get("const", self._versions.get(title_of, 1))
        yield f"Version {version}. {' '.join(whole.get('description', '').split())}\n"
        yield "| key | value | |\n|---|---|---|"
        yield from self._rows(whole, "")
        yield ""

    def _rows(self, schema: Schema, prefix: str) -> Iterator[str]:
        for name, inner in schema["properties"].items():
            about = " ".join((inner.get("description") or "").split())
            absent = "" if name in schema.get("required", ()) else "may be absent"
            notes = ". ".join(filter(None, (absent.capitalize(), about)))
            yield f"| `{prefix}{name}` | {self._words(inner)} | {notes} |".replace(" |  |", " | |")
            for kind, path in self._objects(inner, f"{prefix}{name}"):
                yield from self._rows(kind, f"{path}.")

    def _objects(self, schema: Schema, path: str) -> Iterator[tuple[Schema, str]]:
        """The objects without a section that a value is made of, and where they are."""
        if _name(schema) in NOUNS:
            return
        here = self._resolved(schema)
        if "properties" in here:
            yield here, path
        if "items" in here:
            yield from self._objects(here["items"], f"{path}[]")
        for one in here.get("anyOf", ()):
            yield from self._objects(one, path)

    def _words(self, schema: Schema) -> str:
        if _name(schema) in NOUNS:
            return _link(_name(schema))
        here = self._resolved(schema)
        if "anyOf" in here:
            return ", ".join(dict.fromkeys(self._words(one) for one in here["anyOf"]))
        if "const" in here or "enum" in here:
            values = here.get("enum", [here.get("const")])
            return ", ".join(f"`{value}`" for value in values)
        if here.get("type") == "array":
            return f"list of {self._words(here['items'])}"
        return WORDS.get(here.get("type", ""), "object")

    def _resolved(self, schema: Schema) -> Schema:
        found: Schema = self._schema["$defs"][_name(schema)] if "$ref" in schema else schema
        return found


def _name(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2] or str(schema.get("title", ""))


def _link(noun: str) -> str:
    return f"[{noun}](#{noun.lower()})"


def write() -> None:
    """Refuses to take a key from a document whose version stays."""
    new = page()
    if found := broken(PAGE.read_text(encoding="utf-8"), new):
        text = "Scripts rely on these: raise `shape` of their documents, or their version in docs/json_page.py."
        raise SystemExit("\n".join((text, *found)))
    PAGE.write_text(new, encoding="utf-8")


def broken(before: str, after: str) -> list[str]:
    """What a script that knew a page would miss in what another describes under the same version: a key that went, or
    that can't be any more what it was."""
    old, new = _keys(before), _keys(after)
    same = {key[:2] for key in new}
    return [" ".join(key) for key, kinds in old.items() if key[:2] in same and not kinds <= new.get(key, set())]


def _keys(text: str) -> dict[tuple[str, str, str], set[str]]:
    """The kinds of values of each key, by section, version and key."""
    found, title, version = {}, "", ""
    for line in text.splitlines():
        title = line if line.startswith("### ") else title
        version = line.partition(". ")[0] if line.startswith("Version ") else version
        if row := re.match(r"\| `([^`]+)` \| (.+?) \|", line):
            found[title, version, row[1]] = set(row[2].split(", "))
    return found


def _without() -> Iterator[str]:
    """The reason given in their help."""
    for path, command in leaves():
        why = re.search(r"No --json: (.*?)\.(?:\s|$)", " ".join((command.help or "").split()))
        if path[0] not in HIDDEN and why:
            yield f"- `dstack {' '.join(path)}`: {why[1]}."
