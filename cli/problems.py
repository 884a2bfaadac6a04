"""Problems of a configuration file as a person reads them: place, sentence, the line itself and a caret."""

from __future__ import annotations

from pathlib import Path

from chalicelib.errors import Invalid, Problem

TAB = "    "


def render_problems(error: Invalid, folder: Path) -> str:
    """Every problem, with its line where the file can be read again."""
    blocks = [_block(problem, folder) for problem in error.problems]
    text = "\n".join(blocks)
    count = len(error.problems)
    if count > 1:
        text += f"\n{count} problems; nothing was sent."
    return f"{text}\n{error.hint}" if error.hint else text


def _block(problem: Problem, folder: Path) -> str:
    text = problem.render()
    line = _line(problem, folder)
    if line is None:
        return text
    shown = line.replace("\t", TAB)
    before = line[: max(problem.column - 1, 0)].replace("\t", TAB)
    number = f"{problem.line} | "
    return f"{text}\n  {number}{shown}\n  {' ' * (len(number) - 2)}| {' ' * len(before)}^"


def _line(problem: Problem, folder: Path) -> str | None:
    if problem.line < 1 or not problem.file:
        return None
    try:
        lines = (folder / problem.file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # standard input, or gone since it was parsed: the place alone still helps
        return None
    return lines[problem.line - 1] if problem.line <= len(lines) else None
