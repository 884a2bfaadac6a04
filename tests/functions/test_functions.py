"""The Lambda entry points: small, importable without a cloud, and true to the messages they exchange.

What they do with real events is shown by the scenarios.
"""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chalicelib.engine.effects.table import from_message, to_message
from chalicelib.errors import Moved
from chalicelib.planning.kernel.plan import Effect
from chalicelib.planning.kernel.purchases import Create, CreateSeveral, Describe, DescribeSeveral, Terminate
from infra.functions import FUNCTIONS as TABLE

ROOT = Path(__file__).parents[2]
FUNCTIONS = sorted(path for path in (ROOT / "functions").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("path", FUNCTIONS, ids=[path.stem for path in FUNCTIONS])
def test_a_function_is_one_handler_of_few_statements_that_says_what_it_is(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree)
    assert "handler" in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    assert len(statements) <= 25, f"{path.stem} has {len(statements)} statements"
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert "chalice" not in imported


def test_a_schedule_of_a_stage_that_doesnt_decide_is_no_failure() -> None:
    """Its event would be repeated, and become a dead letter, each time."""
    for name in (each.name for each in TABLE if each.every):
        handler = importlib.import_module(f"functions.{name}").handler
        assert handler({}, None, Away()) == {}, name


class Away:
    """A root of a stage that doesn't decide: of a process whose first event this is."""

    def __getattr__(self, name: str) -> Any:
        raise Moved("This control plane has moved.")


@pytest.mark.slow
def test_importing_the_functions_makes_no_client_and_reads_no_setting() -> None:
    names = ", ".join(path.stem for path in FUNCTIONS)
    code = f"import sys; from functions import {names}; print('boto3' in sys.modules, 'pynamodb' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("kind", [Create, CreateSeveral, Describe, DescribeSeveral, Terminate])
def test_an_effect_survives_its_queue(kind: type[Effect]) -> None:
    units = {"units": ("instance/one", "instance/two")} if kind in (CreateSeveral, DescribeSeveral) else {}
    effect = kind("instance/one", "aws", 1_700_000_000_000_000, **units)
    body = json.dumps(to_message(effect))
    assert from_message(json.loads(body)) == effect


@pytest.mark.slow
def test_missing_settings_are_named() -> None:
    code = "from functions import reconcile; reconcile.handler({}, None)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={"DSTACK_TABLE": "t"}, capture_output=True, text=True, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert "DSTACK_KEYS isn't set" in last and "make deploy" in last
