"""Changes that make no difference that a test could see, each with the reason: `equivalent.toml`.

An entry names a change by its file, the function it is in, the text that it touches and what becomes of it, so it stays
valid wherever in the file that text moves, and no longer: a test fails for an entry that names nothing.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.changes import Change


@dataclass(frozen=True)
class Known:
    file: str
    within: str
    was: str
    becomes: str
    why: str = ""

    def names(self, change: Change) -> bool:
        there = change.file, change.within, code(change.was), code(change.becomes)
        return there == (self.file, self.within, code(self.was), code(self.becomes))


def code(text: str) -> str:
    """The text without its comments, which may be reworded."""
    return re.sub(r"\s+# .*$", "", text, flags=re.MULTILINE)


def known(root: Path) -> list[Known]:
    text = (root / "tests" / "mutants" / "equivalent.toml").read_text(encoding="utf-8")
    return [Known(**entry) for entry in tomllib.loads(text).get("mutant", [])]
