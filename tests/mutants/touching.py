"""Which tests run which line: only those can notice a change of it. Coverage.py saw it while nothing was changed.

It sees its own process alone, and what ran while files were imported belongs to no test. Where either may matter, whole
files of tests are named instead. What a cache or another test's fixture spared a test isn't seen: then a change may
count as survived that another order of tests would notice, never the other way round.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from coverage import CoverageData

from tests.mutants.changes import Change

AT_IMPORT = ""  # coverage.py's name for what no test ran


class Touching:
    def __init__(self, root: Path, seen: Path) -> None:
        """`seen` is a data file of coverage.py whose contexts are tests."""
        self._root, self._data = root, CoverageData(str(seen))
        self._data.read()
        self._lines: dict[str, dict[int, list[str]]] = {}

    def tests(self, change: Change) -> tuple[set[str], bool]:
        """The tests that ran the changed statement, and whether it ran at import, too."""
        if change.file not in self._lines:
            self._lines[change.file] = self._data.contexts_by_lineno(str((self._root / change.file).resolve()))
        ran = self._lines[change.file]
        lines = statement((self._root / change.file).read_bytes(), change.line)
        contexts = {context for line in lines for context in ran.get(line, ())}
        return {context.rpartition("|")[0] for context in contexts - {AT_IMPORT}}, AT_IMPORT in contexts


def statement(source: bytes, line: int) -> range:
    """The lines of the innermost statement at this line; of one with a body, those of its head."""
    found = range(line, line + 1)
    for first, last in _statements(ast.parse(source)):
        if first <= line <= last:
            found = range(first, last + 1)
    return found


def _statements(tree: ast.AST) -> Iterator[tuple[int, int]]:
    """From and to, the outer ones first."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt):
            body: list[ast.AST] = getattr(node, "body", None) or getattr(node, "cases", [])
            last = (node.end_lineno or node.lineno) if not body else max(node.lineno, _first(body[0]) - 1)
            yield node.lineno, last
        yield from _statements(node)


def _first(node: ast.AST) -> int:
    return node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno  # type: ignore[attr-defined]
