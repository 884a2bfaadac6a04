"""Which files a test file imports, itself or through others: it can't notice a change anywhere else."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

# As the formatter writes them, in a script inside a string too. Parsing every file of the tree would take many times as
# long, and a sentence that looks like an import names no file.
_IMPORT = re.compile(
    r"^[ \t]*(?:import[ \t]+(?P<modules>.+)|from[ \t]+(?P<dots>\.*)(?P<module>[\w.]*)[ \t]+"
    r"import[ \t]+(?P<names>\([^)]*\)|[^(\n]+))",
    re.MULTILINE,
)


@functools.cache
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
    for found in _IMPORT.finditer((root / file).read_text(encoding="utf-8")):
        if found["modules"]:
            modules = [name.split(".") for name in _listed(found["modules"])]
        else:
            above = package[: len(package) + 1 - len(found["dots"])] if found["dots"] else ()
            base = [*above, *filter(None, found["module"].split("."))]
            modules = [base, *([*base, name] for name in _listed(found["names"]))]
        for parts in modules:
            inits = ["/".join([*parts[:depth], "__init__.py"]) for depth in range(1, len(parts) + 1)]
            yield from (name for name in ["/".join(parts) + ".py", *inits] if _there(root, name))


@functools.cache
def _there(root: Path, name: str) -> bool:
    return (root / name).is_file()


def _listed(names: str) -> list[str]:
    """Without comments, parentheses and what they are called here."""
    without = re.sub(r"#.*", "", names).strip("() \n")
    return [name.split()[0] for name in without.split(",") if name.strip()]
