"""What only the text of the AWS backend can show: lines that see through odd answers, and the cases that need them.

    python -m tests.backends.aws.planted [--only WORD] [--explore]

plays every change of `plants.toml` in a process of its own, where the changed module is compiled instead of the file,
and prints each case that didn't notice its change, then `noticed/cases`. `--explore` plays the whole suite with each
change and prints all that fails: for finding the change that a new case is about.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import tempfile
import tomllib
import types
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = "tests/backends/test_aws.py::TestAws"
PACKAGE = "chalicelib.backends.aws"
ROOT = Path(__file__).parents[3]
TABLE = Path(__file__).with_name("plants.toml")


@dataclass(frozen=True)
class Plant:
    """One change of one file, and the cases that must fail with it."""

    file: str  # of the backend; one with a folder is of the packages beside it: `kit/zones.py`
    changes: tuple[tuple[str, str], ...]  # several where two lines do the same, so that neither is missed alone
    cases: tuple[str, ...]

    @property
    def module(self) -> str:
        package = PACKAGE.rpartition(".")[0] if "/" in self.file else PACKAGE
        return f"{package}.{self.file.removesuffix('.py').replace('/', '.')}"

    @property
    def source(self) -> str:
        text = (ROOT / f"{self.module.replace('.', '/')}.py").read_text()
        for old, new in self.changes:
            if text.count(old) != 1:
                raise ValueError(f"{self.file} has this {text.count(old)} times, and should have it once: {old!r}")
            text = text.replace(old, new)
        return text

    def __str__(self) -> str:
        return f"{self.file}: {self.changes[0][0].strip().splitlines()[0][:80]}"


def plants() -> list[Plant]:
    with TABLE.open("rb") as table:
        rows = tomllib.load(table)["plant"]
    return [
        Plant(
            row["file"],
            tuple((change["old"], change["new"]) for change in row["change"]),
            tuple(f"test_{case}" for case in row["cases"]),
        )
        for row in rows
    ]


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the changed module."""

    def __init__(self, plant: Plant) -> None:
        self._name = plant.module
        self._code = compile(plant.source, plant.file, "exec")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self._name else None

    def exec_module(self, module: types.ModuleType) -> None:
        exec(self._code, vars(module))


class _Failed:
    """What fails, by case."""

    def __init__(self) -> None:
        self.cases: set[str] = set()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.cases.add(report.nodeid.rpartition("::")[2].partition("[")[0])


def played(plant: Plant, cases: Iterable[str]) -> set[str]:
    """Those of the cases that fail with the change; a process that dies has failed all."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with tempfile.TemporaryFile() as nowhere:
            os.dup2(nowhere.fileno(), 1), os.dup2(nowhere.fileno(), 2)
            os.write(writing, json.dumps(sorted(_failing(plant, list(cases)))).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return set(json.loads(answer)) if answer else set(cases)


def _failing(plant: Plant, cases: list[str]) -> set[str]:
    import pytest

    sys.meta_path.insert(0, _Changed(plant))
    failed = _Failed()
    selection = [f"{HERE}::{case}" for case in cases] or [HERE]
    pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:randomly", *selection], plugins=[failed])
    return failed.cases


def _warm() -> None:
    """Everything but the backend, once for all."""
    import hypothesis  # noqa: F401
    import pytest  # noqa: F401

    from tests.backends.aws.account import Account

    account = Account(lambda: 1_795_000_000_000_000)
    for region in ("us-east-1", "eu-west-1"):
        account.session().client("ec2", region).describe_vpcs()
    account.close()
    if any(name.startswith(PACKAGE + ".machines") for name in sys.modules):
        raise AssertionError("the backend is loaded already, so no change would count")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.backends.aws.planted", description=__doc__)
    parser.add_argument("--only", default="", help="changes of a file, or for a case, whose name has this")
    parser.add_argument("--explore", action="store_true", help="play the whole suite and print all that fails")
    given = parser.parse_args()
    os.chdir(ROOT)
    _warm()
    noticed: set[str] = set()
    wanted: set[str] = set()
    for plant in plants():
        if not any(given.only in text for text in (plant.file, *plant.cases)):
            continue
        failed = played(plant, () if given.explore else plant.cases)
        wanted |= set(plant.cases)
        noticed |= failed & set(plant.cases)
        print(f"{plant}: {len(failed)} failed", flush=True)
        if given.explore:
            print("    " + " ".join(sorted(failed)))
        for case in sorted(set(plant.cases) - failed):
            print(f"  not noticed by {case}")
    print(f"{len(noticed)}/{len(wanted)}")
    return 0 if noticed == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
