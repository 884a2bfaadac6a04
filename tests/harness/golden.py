"""Texts that were approved once and are compared from then on.

With `GOLDEN=write` in its environment, any run of pytest writes those that it comes to anew, and passes. Read the
difference before you commit it.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

WRITING = os.environ.get("GOLDEN") == "write"


def check(path: Path, text: str, *, write: bool = WRITING) -> None:
    if write:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    approved = path.read_text(encoding="utf-8")
    lines = difflib.unified_diff(approved.splitlines(), text.splitlines(), "approved", "now", n=1, lineterm="")
    assert text == approved, "\n".join([f"{path.name} (GOLDEN=write writes it anew)", *lines])
