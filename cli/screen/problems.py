"""Problems as shown to users: place, sentence, line and caret, whether found here or by a server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from chalicelib.errors import DstackError, Invalid, Problem

if TYPE_CHECKING:
    from chalicelib import contract

TAB = "    "
SHOWN = 120  # characters of a line
BEFORE = 40  # characters before the place, in a longer line


def problems_in(entry: Mapping[str, object]) -> tuple[Problem, ...]:
    """The problems of single fields in a server's refusal, one per line; empty if it has none."""
    lines, fields = str(entry.get("msg", "")).split("\n"), entry.get("fields")
    if not isinstance(fields, list) or len(fields) != len(lines) or not all(isinstance(f, str) for f in fields):
        return ()
    return tuple(
        Problem(line.removeprefix(Problem("", field).text), field) for line, field in zip(lines, fields, strict=True)
    )


def render_problems(error: Invalid, folder: Path) -> str:
    """All problems, each with its line if the file can be read again."""
    blocks = [_block(problem, folder) for problem in error.problems]
    text = "\n".join(blocks)
    count = len(error.problems)
    if count > 1:
        text += f"\n{count} problems; nothing was done."
    return f"{text}\n{error.hint}" if error.hint else text


def error_document(error: DstackError, code: int) -> contract.ErrorDocument:
    """An error for programs; `problems` says where in a file or in which field."""
    problems = error.problems if isinstance(error, Invalid) else ()
    found: list[contract.ErrorPlace] = [
        {"message": p.message, "hint": p.hint, "field": p.path, "file": p.file, "line": p.line, "column": p.column}
        for p in problems
    ]
    return {
        "shape": 1,
        "error": {"message": error.message, "hint": error.hint, "exit_code": code, "problems": found},
    }


def _block(problem: Problem, folder: Path) -> str:
    text = problem.render()
    line = _line(problem, folder)
    if line is None:
        return text
    at = max(problem.column - 1, 0)
    start = max(at - BEFORE, 0) if len(line) > SHOWN else 0
    shown = ("…" if start else "") + line[start : start + SHOWN].replace("\t", TAB)
    shown += "…" if len(line) > start + SHOWN else ""
    before = ("…" if start else "") + line[start:at].replace("\t", TAB)
    number = f"{problem.line} | "
    return f"{text}\n  {number}{shown}\n  {' ' * (len(number) - 2)}| {' ' * len(before)}^"


def _line(problem: Problem, folder: Path) -> str | None:
    if problem.line < 1 or not problem.file:
        return None
    try:
        lines = (folder / problem.file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # standard input, or deleted since it was parsed: the place alone helps
        return None
    return lines[problem.line - 1] if problem.line <= len(lines) else None
