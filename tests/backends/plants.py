"""What only the text of a backend can show: lines that see through odd answers, and the tests that need them.

    python -m tests.backends.plants [BACKEND …] [--only WORD] [--explore]

plays every change of a backend's `plants.toml` in a process of its own, where the changed module is compiled instead of
the file, and prints each test that didn't notice its change, then `noticed/tests`. `--explore` plays the whole
conformance suite with each change and prints all that fails: for finding the change that a new case is about.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import tempfile
import tomllib
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.backends.changed import ROOT, TABLE, changed

HERE = "tests/backends"
PACKAGES = "chalicelib.backends"


@dataclass(frozen=True)
class Plant:
    """One change of one file, and the tests that must fail with it."""

    backend: str
    file: str  # of the backend, a table too; one with a folder is of the packages beside it: `kit/zones.py`
    changes: tuple[tuple[str, str], ...]  # several where two lines do the same, so that neither is missed alone
    tests: tuple[str, ...]

    @property
    def module(self) -> str:
        package = PACKAGES if "/" in self.file else f"{PACKAGES}.{self.backend}"
        return f"{package}.{self.file.removesuffix(TABLE).removesuffix('.py').replace('/', '.')}"

    def source(self, folder: Path) -> str:
        return changed(self.module, self.file, self.changes, folder)

    def __str__(self) -> str:
        return f"{self.backend}/{self.file}: {self.changes[0][0].strip().splitlines()[0][:80]}"


# By backend, its part of the conformance suite.
SUITES = {"aws": "TestAws", "kubernetes": "TestKubernetes", "runpod": "TestRunpod", "vastai": "TestVastAI"}


def suite_of(backend: str) -> str:
    return f"{HERE}/test_{backend}.py::{SUITES[backend]}"


def plants(backend: str) -> list[Plant]:
    """In its table, `cases` are of the conformance suite, and `tests` of the backend's own: `pods::a_user_is_a_number`
    is in `test_pods.py`."""
    with (ROOT / HERE / backend / "plants.toml").open("rb") as table:
        rows = tomllib.load(table)["plant"]
    return [
        Plant(
            backend,
            row["file"],
            tuple((change["old"], change["new"]) for change in row["change"]),
            (
                *(f"{suite_of(backend)}::test_{case}" for case in row.get("cases", ())),
                *(f"{HERE}/{backend}/test_{test.replace('::', '.py::test_')}" for test in row.get("tests", ())),
            ),
        )
        for row in rows
    ]


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the changed module."""

    def __init__(self, plant: Plant, folder: Path) -> None:
        self._name = plant.module
        self._code = compile(plant.source(folder), plant.file, "exec")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self._name else None

    def exec_module(self, module: types.ModuleType) -> None:
        exec(self._code, vars(module))


class _Failed:
    """The tests that fail."""

    def __init__(self) -> None:
        self.tests: set[str] = set()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.tests.add(report.nodeid.partition("[")[0])


def played(plant: Plant, tests: Iterable[str]) -> set[str]:
    """Those of the tests that fail with the change; a process that dies has failed all."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with tempfile.TemporaryFile() as nowhere:
            os.dup2(nowhere.fileno(), 1), os.dup2(nowhere.fileno(), 2)
            os.write(writing, json.dumps(sorted(_failing(plant, list(tests)))).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return set(json.loads(answer)) if answer else set(tests)


def _failing(plant: Plant, tests: list[str]) -> set[str]:
    import pytest

    failed = _Failed()
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-n", "0"]
    with tempfile.TemporaryDirectory() as folder:
        sys.meta_path.insert(0, _Changed(plant, Path(folder)))
        status = pytest.main([*quiet, *tests], plugins=[failed])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return {f"pytest ended with {status}: is there no such test?"}
    return failed.tests


def _warm(backend: str) -> None:
    """Everything but the backend, once for all."""
    import hypothesis  # noqa: F401
    import pytest  # noqa: F401

    WARM[backend]()
    if any(name.startswith(f"{PACKAGES}.{backend}.") for name in sys.modules):
        raise AssertionError("the backend is loaded already, so no change would count")


def _warm_aws() -> None:
    from tests.backends.aws.account import Account

    account = Account(lambda: 1_795_000_000_000_000)
    for region in ("us-east-1", "eu-west-1"):
        account.session().client("ec2", region).describe_vpcs()
    account.close()


def _warm_kubernetes() -> None:
    importlib.import_module("kubernetes.config")
    importlib.import_module("tests.backends.kubernetes.fake.cluster")


def _warm_market() -> None:
    importlib.import_module("tests.backends.fakes.server")


WARM: dict[str, Callable[[], None]] = {
    "aws": _warm_aws,
    "kubernetes": _warm_kubernetes,
    "runpod": _warm_market,
    "vastai": _warm_market,
}


def play(backend: str, only: str = "", *, explore: bool = False) -> tuple[int, int]:
    """How much was noticed, and how much should have been."""
    noticed = wanted = 0
    for plant in plants(backend):
        if not any(only in text for text in (plant.file, *plant.tests)):
            continue
        failed = played(plant, [suite_of(backend)] if explore else plant.tests)
        wanted, noticed = wanted + len(plant.tests), noticed + len(failed & set(plant.tests))
        print(f"{plant}: {len(failed)} failed", flush=True)
        if explore:
            print("    " + " ".join(sorted(failed)))
        for missed in sorted(set(plant.tests) - failed):
            print(f"  not noticed by {missed}")
    return noticed, wanted


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.backends.plants", description=__doc__)
    parser.add_argument("backends", nargs="*", help=f"of {', '.join(SUITES)}; all unless set")
    parser.add_argument("--only", default="", help="changes of a file, or for a test, whose name has this")
    parser.add_argument("--explore", action="store_true", help="play the whole suite and print all that fails")
    given = parser.parse_args()
    os.chdir(ROOT)
    noticed = wanted = 0
    for backend in given.backends or SUITES:
        _warm(backend)
        found = play(backend, given.only, explore=given.explore)
        noticed, wanted = noticed + found[0], wanted + found[1]
    print(f"{noticed}/{wanted}")
    return 0 if noticed == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
