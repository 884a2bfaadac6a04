"""What can be changed in a source file: edits of a few bytes, so that all else of the file stays as it is.

Words aren't changed: docstrings, messages, log calls, what an assert says. Nor is what only a type checker reads.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FLIPS: dict[type[ast.AST], tuple[bytes, str]] = {  # operator → what it looks like, what it becomes
    ast.Lt: (rb"<", "<="),
    ast.LtE: (rb"<=", "<"),
    ast.Gt: (rb">", ">="),
    ast.GtE: (rb">=", ">"),
    ast.Eq: (rb"==", "!="),
    ast.NotEq: (rb"!=", "=="),
    ast.Is: (rb"\bis\b", "is not"),
    ast.IsNot: (rb"\bis\s+not\b", "is"),
    ast.In: (rb"\bin\b", "not in"),
    ast.NotIn: (rb"\bnot\s+in\b", "in"),
    ast.And: (rb"\band\b", "or"),
    ast.Or: (rb"\bor\b", "and"),
    ast.Add: (rb"\+", "-"),
    ast.Sub: (rb"-", "+"),
    ast.Mult: (rb"\*", "+"),
    ast.Div: (rb"/", "*"),
    ast.FloorDiv: (rb"//", "*"),
    ast.Mod: (rb"%", "*"),
    ast.Pow: (rb"\*\*", "*"),
}
_AGAINST = {  # a clock, which never reads the very moment that it is compared with
    ast.Lt: ">=",
    ast.LtE: ">",
    ast.Gt: "<=",
    ast.GtE: "<",
}
_OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_HINT = "hint"  # the words of a refusal that say how to mend it
_FOR_TYPES = ("Literal", "Annotated", "Callable", "TypeVar")

Edit = tuple[str, int, int, str]  # kind, from, to, the text that comes there


@dataclass(frozen=True, order=True)
class Change:
    """One edit."""

    file: str
    line: int
    kind: str
    within: str  # the function or class
    was: str  # the lines it touches, without their margin
    becomes: str
    start: int
    end: int
    text: str

    @property
    def name(self) -> tuple[str, str, str, str]:
        """Which change it is, wherever in the file its text moves and however a comment there is reworded."""
        return self.file, self.within, code(self.was), code(self.becomes)

    def __str__(self) -> str:
        lines = [f"{self.file}:{self.line} ({self.kind})"]
        lines += [f"  - {line}" for line in self.was.splitlines()]
        lines += [f"  + {line}" for line in self.becomes.splitlines()]
        return "\n".join(lines)

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


def code(text: str) -> str:
    """The text without its comments."""
    return re.sub(r"\s+# .*$", "", text, flags=re.MULTILINE)


def changes(root: Path, file: str) -> list[Change]:
    """Every change of one file, in order. A few of them leave nothing that Python can read: ask `readable`."""
    source = (root / file).read_bytes()
    found = set()
    for within, (kind, start, end, text) in _Source(source).edits(ast.parse(source), ()):
        first, last = source.rfind(b"\n", 0, start) + 1, (source + b"\n").index(b"\n", end)
        was, becomes = source[first:last], source[first:start] + text.encode() + source[end:last]
        line = source.count(b"\n", 0, start) + 1
        texts = was.decode().strip(), becomes.decode().strip()
        if was != becomes:  # a `return None` can't become one
            found.add(Change(file, line, kind, ".".join(within), *texts, start, end, text))
    return sorted(found)


def readable(root: Path, change: Change) -> bool:
    try:
        ast.parse(change.applied((root / change.file).read_bytes()))
    except SyntaxError:
        return False
    return True


class _Source:
    def __init__(self, source: bytes) -> None:
        self._source, self._starts = source, [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def edits(self, node: ast.AST, within: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Edit]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            within = (*within, node.name)
        for edit in self._of(node):
            yield within, edit
        for child in _read_at_run_time(node):
            yield from self.edits(child, within)

    def _of(self, node: ast.AST) -> Iterator[Edit]:
        match node:
            case ast.Compare():
                sides = [node.left, *node.comparators]
                for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
                    yield from self._flip("comparison", left, operator, right)
            case ast.BoolOp():
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield from self._flip("and/or", left, node.op, right)
            case ast.BinOp() if not (_is_prose(node.left) or _is_prose(node.right)):
                yield from self._flip("arithmetic", node.left, node.op, node.right)
            case ast.UnaryOp(op=ast.Not()):
                yield "negation", *self._span(node), self._text(node.operand)
            case ast.If() | ast.While() | ast.IfExp():
                yield from self._negate(node.test)
            case ast.comprehension():
                for test in node.ifs:
                    yield from self._negate(test)
            case ast.Constant(value=bool() as value):
                yield "constant", *self._span(node), str(not value)
            case ast.Constant(value=int() | float() as value):
                small = value == 0 or (isinstance(value, int) and value < 10)
                yield "constant", *self._span(node), str(value + 1 if small else value * 2)
            case ast.Return(value=ast.Compare() | ast.BoolOp() as value):
                yield "return", *self._span(value), f"not ({self._text(value)})"
            case ast.Return(value=ast.Constant(value=bool())):
                return  # the constant is changed
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.UnaryOp) and self._text(value):
                yield "return", *self._span(value), "None"
            case ast.Raise(exc=ast.expr()):
                yield "raise", *self._span(node), "pass"
            case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom() | ast.Await()):
                yield "call", *self._span(node), "pass"
            case ast.AugAssign():
                yield "assignment", *self._span(node), "pass"
            case ast.Call():
                if isinstance(node.func, ast.Name) and node.func.id in _OPPOSITES:
                    yield "call", *self._span(node.func), _OPPOSITES[node.func.id]
                wanted = (keyword for keyword in node.keywords if keyword.arg and not _guards(node, keyword))
                named = (keyword for keyword in wanted if keyword.arg != _HINT and not _is_prose(keyword.value))
                yield from (self._drop("argument", *self._span(keyword)) for keyword in named)
            case ast.Dict():
                pairs = ((key, value) for key, value in zip(node.keys, node.values, strict=True) if key is not None)
                yield from (self._drop("entry", self._span(key)[0], self._span(value)[1]) for key, value in pairs)
            case ast.Set(elts=[_, _, *_]):
                yield from (self._drop("entry", *self._span(element)) for element in node.elts)

    def _span(self, node: Any) -> tuple[int, int]:
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()

    def _flip(self, kind: str, left: ast.AST, operator: ast.AST, right: ast.AST) -> Iterator[Edit]:
        pattern, text = _FLIPS.get(type(operator), (b"$^", ""))
        if b"monotonic()" in self._source[self._span(left)[0] : self._span(right)[1]]:
            text = _AGAINST.get(type(operator), text)
        start, end = self._span(left)[1], self._span(right)[0]
        if found := re.search(pattern, self._source[start:end]):
            yield kind, start + found.start(), start + found.end(), text

    def _negate(self, test: ast.expr) -> Iterator[Edit]:
        """A condition that has no operator of its own to change."""
        if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
            yield "negation", *self._span(test), f"not ({self._text(test)})"

    def _drop(self, kind: str, start: int, end: int) -> Edit:
        """An item of several, with the comma that follows or, where there is none, the one before."""
        if after := re.compile(rb"\s*,[ \t]*").match(self._source, end):
            return kind, start, after.end(), ""
        before = re.search(rb",\s*$", self._source[:start])
        return kind, before.start() if before else start, end, ""


def _read_at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that make a difference when the program runs, without its words."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not (_is_prose(child) or _is_for_reading(child) or _guards(node, child)):
                yield child


def _guards(call: ast.AST, child: ast.AST) -> bool:
    """`zip(strict=True)` is an assertion, too."""
    return isinstance(child, ast.keyword) and isinstance(call, ast.Call) and getattr(call.func, "id", "") == "zip"


def _is_prose(node: ast.AST | None) -> bool:
    match node:
        case ast.JoinedStr():
            return True
        case ast.Constant(value=str() as text):
            return " " in text
        case ast.BinOp(left=left, op=ast.Mod()):
            return _is_prose(left)
    return False


def _is_for_reading(node: ast.AST) -> bool:
    """An assertion, a call of a logger, something for the type checker."""
    match node:
        case ast.Assert() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Subscript(value=ast.Name(id=name)) | ast.Call(func=ast.Name(id=name)):
            return name in _FOR_TYPES
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)) | ast.Name(id=name))) if (
            name != "self"
        ):
            return name in ("log", "logger", "logging")
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name))):
            return name == "_log"
        case ast.Expr(value=ast.Constant()):
            return True
    return False
