"""Which files a test file imports, itself or through others: it can't notice a change anywhere else."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path


def imported(root: Path, path: str) -> dict[str, int]:
    """The files below `root` that `path` imports, each with how many imports away it is. What pytest gives to a test
    file counts as its own: the `conftest.py` of its folders."""
    given = ((folder / "conftest.py").as_posix() for folder in Path(path).parents)
    away, level = {path: 0}, 0
    layer = [path, *(name for name in given if (root / name).exists())]
    while layer:
        level += 1
        layer = sorted({name for file in layer for name in _imports(root, file)} - away.keys())
        away.update(dict.fromkeys(layer, level))
    return away


@functools.cache
def _imports(root: Path, file: str) -> frozenset[str]:
    return frozenset(_named(root, file))


def _named(root: Path, file: str) -> Iterator[str]:
    package = Path(file).parent.parts
    for node in ast.walk(ast.parse((root / file).read_bytes())):
        if isinstance(node, ast.Import):
            modules = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            base = [*above, *(node.module or "").split(".")] if node.module else [*above]
            modules = [base, *([*base, alias.name] for alias in node.names)]
        else:
            continue
        for parts in modules:
            inits = ["/".join([*parts[:depth], "__init__.py"]) for depth in range(1, len(parts) + 1)]
            yield from (name for name in ["/".join(parts) + ".py", *inits] if (root / name).is_file())
