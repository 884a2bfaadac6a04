"""A backend with a mistake in one of its lines: its package is imported anew, with that module changed.

What people write in their configurations is read by the same models, so that module stays as it is.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "chalicelib.backends.azure"
KEPT = {PACKAGE, f"{PACKAGE}.config"}
FOLDER = Path(__file__).parents[3] / "chalicelib" / "backends" / "azure"


@dataclass(frozen=True)
class Mistake:
    file: str
    old: str
    new: str
    check: str  # of `traps`

    @property
    def module(self) -> str:
        return f"{PACKAGE}.{self.file}"

    @property
    def source(self) -> str:
        text = (FOLDER / f"{self.file}.py").read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.file} has this {text.count(self.old)} times, and should have it once: {self.old!r}"
            )
        return text.replace(self.old, self.new)

    def __str__(self) -> str:
        return f"{self.file}: {self.old.strip().splitlines()[0][:60]}"


def mistakes() -> list[Mistake]:
    with Path(__file__).with_suffix(".toml").open("rb") as table:
        return [Mistake(**row) for row in tomllib.load(table)["mistake"]]


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, mistake: Mistake) -> None:
        self._name, self._code = mistake.module, compile(mistake.source, mistake.file, "exec")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, vars(module))


@contextmanager
def made(mistake: Mistake) -> Iterator[tuple[Any, Any]]:
    """The classes of backend and client."""
    usual = {name: each for name, each in sys.modules.items() if name.startswith(f"{PACKAGE}.") and name not in KEPT}
    finder = _Changed(mistake)
    for name in usual:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        backend = importlib.import_module(f"{PACKAGE}.backend").AzureBackend
        importlib.import_module(f"{PACKAGE}.checking")
        yield backend, importlib.import_module(f"{PACKAGE}.client").AzureClient
    finally:
        sys.meta_path.remove(finder)
        for name in [each for each in sys.modules if each.startswith(f"{PACKAGE}.") and each not in KEPT]:
            del sys.modules[name]
        sys.modules.update(usual)
        package = sys.modules[PACKAGE]
        for name, each in usual.items():
            setattr(package, name.removeprefix(f"{PACKAGE}."), each)
