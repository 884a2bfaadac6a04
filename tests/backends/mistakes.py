"""A backend with a mistake in one of its lines: its package is imported anew, with that module changed, or its table.

What people write in their configurations is read by the same models, so that module stays as it is.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from tests.backends.changed import TABLE, changed


@dataclass(frozen=True)
class Mistake:
    package: str  # chalicelib.backends.…
    file: str  # a module's name, or a table's
    old: str
    new: str
    check: str  # the function that notices it

    @property
    def module(self) -> str:
        return f"{self.package}.{self.file.removesuffix(TABLE)}"

    def source(self, folder: Path) -> str:
        return changed(self.module, self.file, [(self.old, self.new)], folder)

    def __str__(self) -> str:
        return f"{self.file}: {self.old.strip().splitlines()[0][:60]}"


def mistakes(package: str, table: Path) -> list[Mistake]:
    with table.open("rb") as file:
        return [Mistake(package, **row) for row in tomllib.load(file)["mistake"]]


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, mistake: Mistake, folder: Path) -> None:
        self._name, self._code = mistake.module, compile(mistake.source(folder), mistake.file, "exec")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, vars(module))


@contextmanager
def made(mistake: Mistake) -> Iterator[Callable[[str], ModuleType]]:
    """How to import a module of the package."""
    inside, kept = f"{mistake.package}.", f"{mistake.package}.config"

    def anew() -> dict[str, ModuleType]:
        return {name: each for name, each in sys.modules.items() if name.startswith(inside) and name != kept}

    usual = anew()
    folder = TemporaryDirectory()
    finder = _Changed(mistake, Path(folder.name))
    package = sys.modules[mistake.package]

    def forget() -> None:
        for name in anew():
            del sys.modules[name]
            delattr(package, name.removeprefix(inside))  # where `from package import module` looks first

    forget()
    sys.meta_path.insert(0, finder)
    try:
        importlib.import_module(f"{inside}checking")
        yield lambda name: importlib.import_module(inside + name)
    finally:
        sys.meta_path.remove(finder)
        folder.cleanup()
        forget()
        sys.modules.update(usual)
        for name, each in usual.items():
            setattr(package, name.removeprefix(inside), each)
