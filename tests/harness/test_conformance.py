"""Nobody opts out of a suite: an implementation only skips what its facts deny, by name."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tests.agent
import tests.backends
import tests.serving
import tests.store
from chalicelib.domain.facts import BackendFacts
from tests.agent.runtime_conformance import RuntimeConformance
from tests.backends.conformance import BackendConformance
from tests.harness.conformance import Conformance
from tests.harness.server import ROOT
from tests.serving import contract, contract_live, contract_replicas
from tests.serving.door import DoorFacts
from tests.store.blob_contract import BlobContract
from tests.store.contract import StoreContract
from tests.store.log_contract import LogContract

DOORS = (
    *(contract.PassesOn, contract.Headers, contract.Bodies),
    *(contract_live.Streams, contract_live.WebSockets, contract_live.WhoMayCome, contract_live.Tricks),
    *(contract_replicas.Errors, contract_replicas.Limits, contract_replicas.Replicas),
    *(contract_replicas.Holding, contract_replicas.Counting),
)
SUITES = (BackendConformance, BlobContract, LogContract, RuntimeConformance, StoreContract, *DOORS)
EXCUSES = {"skip", "skipif", "xfail", "importorskip"}


@cache
def joined() -> frozenset[type]:
    """The test classes of all packages that have suites."""
    found: set[type] = set()
    for package in (tests.agent, tests.backends, tests.serving, tests.store):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.rpartition(".")[2].startswith("test_"):
                classes = inspect.getmembers(importlib.import_module(module.name), inspect.isclass)
                found |= {kind for name, kind in classes if name.startswith("Test")}
    return frozenset(found)


def members(suite: type) -> list[type]:
    """The test classes that join it."""
    return sorted((kind for kind in joined() if issubclass(kind, suite)), key=lambda kind: kind.__qualname__)


def cases(suite: type) -> dict[str, Any]:
    return {name: getattr(suite, name) for name in dir(suite) if name.startswith("test_")}


def marks(thing: Any) -> Iterator[pytest.Mark]:
    yield from getattr(thing, "pytestmark", ())


def opted_out(kind: type, suite: type) -> list[str]:
    """What a class does to run less than the whole suite."""
    replaced = [name for name, case in cases(suite).items() if getattr(kind, name) is not case]
    excused = [mark.name for base in kind.__mro__ for mark in marks(base) if mark.name in EXCUSES]
    return [*replaced, *excused]


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.__name__)
def test_nobody_opts_out(suite: type) -> None:
    assert issubclass(suite, Conformance) and members(suite)
    assert {kind.__name__: opted_out(kind, suite) for kind in members(suite) if opted_out(kind, suite)} == {}


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.__name__)
def test_no_case_hides_another(suite: type) -> None:
    named = [name for base in suite.__mro__ for name in vars(base) if name.startswith("test_")]
    assert len(named) == len(set(named))


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.__name__)
def test_a_case_is_excused_by_facts_alone(suite: type) -> None:
    capabilities = {name for name, field in BackendFacts.model_fields.items() if field.annotation is bool}
    capabilities |= {"batch", "describes", "visibility_lag"}  # numbers, and 0 denies them
    capabilities |= {field.name for field in dataclasses.fields(DoorFacts)}
    for case in cases(suite).values():
        assert not EXCUSES & {mark.name for mark in marks(case)}
        assert {name for mark in marks(case) if mark.name == "needs" for name in mark.args} <= capabilities
    sources = [inspect.getsource(base) for base in suite.__mro__ if issubclass(base, Conformance)]
    calls = [node for text in sources for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)]
    assert not EXCUSES & {node.attr for node in calls}


def test_an_opt_out_would_be_seen() -> None:
    name = next(iter(cases(StoreContract)))
    Removes = type("Removes", (StoreContract,), {name: None})
    Skips = pytest.mark.skip(reason="slow")(type("Skips", (StoreContract,), {}))
    assert opted_out(Removes, StoreContract) == [name]
    assert opted_out(Skips, StoreContract) == ["skip"]
    assert opted_out(type("Joins", (StoreContract,), {}), StoreContract) == []


SUITE = """
import pytest
from chalicelib.domain.facts import BackendFacts
from tests.harness.conformance import Conformance, needs

class Suite(Conformance):
    @needs("spot")
    def test_of_machines(self): pass

    @needs("spot", "multinode")
    def test_of_clusters(self): pass

class TestOne(Suite):
    @pytest.fixture
    def facts(self): return BackendFacts(name="one")
"""


@pytest.mark.slow
def test_only_what_the_facts_deny_is_not_asked(tmp_path: Path) -> None:
    """Nor is that a failure where everything real is required."""
    (tmp_path / "test_it.py").write_text(SUITE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-rs", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "REQUIRE_REAL": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "1 passed, 1 skipped" in done.stdout.splitlines()[-1], done.stdout
    assert "the facts of one deny `multinode`" in done.stdout
