"""Google's library as a function needs it: what is left out isn't read at a cold start, nor compiled where the zip has
no bytecode.

Of the services, those that are called stay; of the 2,000 types, those that these services name, and what these types
are made of. Comments go, too: they are most of the text.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from chalicelib.backends.gcp.sdk import PACKAGE, SERVICES

_CLASS = re.compile(r"^class (\w+)\(", re.MULTILINE)
_NAMED = re.compile(r"compute\.([A-Z]\w+)")  # in a service
_PART = re.compile(r'(?:message|enum)="(\w+)')  # of a type
_LISTED = re.compile(r'^        "(\w+)",\n', re.MULTILINE)  # in the manifest of all types
_END = "\n__all__"


def trim(installed: Path) -> None:
    """In a folder of installed packages."""
    library = installed.joinpath(*PACKAGE.split("."))
    services = library / "services"
    for folder in services.iterdir():
        if folder.is_dir() and folder.name not in SERVICES:
            shutil.rmtree(folder)
    sources = {file: file.read_text(encoding="utf-8") for file in services.rglob("*.py")}
    types = library / "types" / "compute.py"
    named = {name for text in sources.values() for name in _NAMED.findall(text)}
    sources[types] = needed(types.read_text(encoding="utf-8"), named)
    sources[types.with_name("__init__.py")] = ""
    for file, text in sources.items():
        file.unlink()  # other packages may share it
        file.write_text(without_docstrings(text), encoding="utf-8")


def needed(text: str, named: Iterable[str]) -> str:
    """The types' module with these types alone, and those that they are made of."""
    starts = [found.start() for found in _CLASS.finditer(text)]
    end = text.index(_END)
    ends = [*starts[1:], end]
    types = {name: text[start:stop] for name, start, stop in zip(_CLASS.findall(text), starts, ends, strict=True)}
    kept = _reached(types, named)
    head = _LISTED.sub(lambda line: line[0] if line[1] in kept else "", text[: starts[0]])
    return "".join((head, *(source for name, source in types.items() if name in kept), text[end:]))


def _reached(types: Mapping[str, str], named: Iterable[str]) -> set[str]:
    kept: set[str] = set()
    waiting = [name for name in named if name in types]
    while waiting:
        name = waiting.pop()
        if name not in kept:
            kept.add(name)
            waiting += [part for part in _PART.findall(types[name]) if part in types]
    return kept


def without_docstrings(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)
