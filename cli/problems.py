"""Problems of a configuration file as a person reads them: place, sentence, the line itself and a caret."""

from __future__ import annotations

from pathlib import Path

from chalicelib.errors import Invalid, Problem

TAB = "    "


def render_problems(error: Invalid, folder: Path, source: str | None = None) -> str:
    """Every problem; `source` is the text of the file where it can't be read again (standard input)."""
    blocks = [_block(problem, folder, source) for problem in error.problems]
    text = "\n".join(blocks)
    count = len(error.problems)
    if count > 1:
        text += f"\n{count} problems; nothing was sent."
    return f"{text}\n{error.hint}" if error.hint else text


def _block(problem: Problem, folder: Path, source: str | None) -> str:
    text = problem.render()
    line = _line(problem, folder, source)
    if line is None:
        return text
    shown = line.replace("\t", TAB)
    before = line[: max(problem.column - 1, 0)].replace("\t", TAB)
    number = f"{problem.line} | "
    return f"{text}\n  {number}{shown}\n  {' ' * (len(number) - 2)}| {' ' * len(before)}^"


def _line(problem: Problem, folder: Path, source: str | None) -> str | None:
    if problem.line < 1:
        return None
    if source is None:
        if not problem.file:
            return None
        try:
            source = (folder / problem.file).read_text(encoding="utf-8", errors="replace")
        except OSError:  # gone since it was parsed: the place alone still helps
            return None
    lines = source.splitlines()
    return lines[problem.line - 1] if problem.line <= len(lines) else None
