"""What both clients are given. A file is a theme: a `base`, and cases that add to it or bring a `file` of their own.

Beside the configuration a case may have `flags` (one line of shell), `env` (`{url}` is the server's), other `files`
(`~/…` in the home folder), the `path` of its configuration and what is `given` to -f instead of that path ("" for no
-f at all). A theme whose name begins with `refused` holds what both clients must refuse.

With `git` the folder is a checkout of `{far}`, a repository that anybody may read, after the shell's lines `before`;
`{closed}` is the same one behind a token, `{ssh}` behind a key, `~/good`. `stored` are credentials that the server has
for it. What is `submitted` is answered with a plan and goes on to the end. `command` is what is called instead of
`apply`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.wire.far import CLOSED, OPEN

FOLDER = Path(__file__).parent
DEFAULT = ".dstack.yml"
ADDRESSES = {
    "{far}": f"https://{OPEN}/{{case}}/app.git",
    "{closed}": f"https://{CLOSED}/{{case}}/app.git",
    "{ssh}": f"git@{CLOSED}:{{case}}/app.git",
    "{path}": "{case}/app.git",
}


@dataclass(frozen=True)
class Case:
    """One command line and all that it may depend on."""

    name: str
    file: str
    flags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    path: str = DEFAULT
    given: str | None = None
    git: bool = False
    before: str = ""
    stored: Mapping[str, str | None] | None = None
    submitted: bool = False
    command: str = "apply"

    @property
    def argv(self) -> list[str]:
        if self.command != "apply":
            return [self.command, *self.flags]
        named = self.given if self.given is not None else "" if self.path == DEFAULT else self.path
        return ["apply", *(("-f", named) if named else ()), "-y", *self.flags]

    @property
    def theme(self) -> str:
        return self.name.rpartition("-")[0]

    @property
    def refused(self) -> bool:
        return self.name.startswith("refused")

    def __str__(self) -> str:
        """For a person who looks at a failure: everything that is not as usual."""
        parts = [f"dstack {shlex.join(self.argv)}", self.file.rstrip()]
        parts += [f"{name}={value}" for name, value in self.env.items()]
        parts += [f"[{name}] {text.rstrip()}" for name, text in self.files.items()]
        parts += [f"$ {self.before}"] if self.before else []
        return "\n".join(parts)

    def placed(self) -> Case:
        """With the addresses of its repository filled in."""

        def put(text: str) -> str:
            for placeholder, address in ADDRESSES.items():
                text = text.replace(placeholder, address.replace("{case}", self.name))
            return text

        stored = self.stored and {name: value and put(value) for name, value in self.stored.items()}
        flags = tuple(put(flag) for flag in self.flags)
        return replace(self, file=put(self.file), flags=flags, before=put(self.before), stored=stored)


def cases_of(theme: Path) -> Iterator[Case]:
    document = yaml.load(theme.read_text(encoding="utf-8"), yaml.CSafeLoader)
    assert document.keys() == {"about", "base", "cases"}, f"{theme.name}: about, base and cases are what there is"
    for number, written in enumerate(document["cases"], start=1):
        fields: dict[str, Any] = {"add": written} if isinstance(written, str) else dict(written)
        add = fields.pop("add", "")
        file = fields.pop("file", None)
        flags = tuple(shlex.split(fields.pop("flags", "")))
        text = file if file is not None else f"{document['base']}{add}\n"
        yield Case(f"{theme.stem}-{number}", text, flags, **fields).placed()


@cache
def corpus() -> tuple[Case, ...]:
    return tuple(case for theme in sorted(FOLDER.glob("*.yml")) for case in cases_of(theme))
