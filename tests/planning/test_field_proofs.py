"""The language is covered: every field of every spec is either proven by a test or refused by name, and never both."""

from __future__ import annotations

import ast
import importlib
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.gateways import GatewayConfiguration, GatewaySpec
from chalicelib.domain.specs.runs import DevEnvironmentConfiguration, RunSpec, TaskConfiguration
from chalicelib.domain.specs.services import ServiceConfiguration
from chalicelib.planning.gateways.field_support import GATEWAY_NOT_BUILT
from chalicelib.planning.kernel.field_support import NotBuilt
from chalicelib.planning.runs.field_support import FLEET_NOT_BUILT, RUN_NOT_BUILT
from tests.harness.rows import each
from tests.planning.field_proofs import FLEET_PROOFS, GATEWAY_PROOFS, RUN_PROOFS

ROOT = Path(__file__).parents[2]
CONFIGURATIONS: dict[type[BaseModel], list[type[BaseModel]]] = {  # what `configuration` may hold, where it is left open
    RunSpec: [TaskConfiguration, DevEnvironmentConfiguration, ServiceConfiguration],
    GatewaySpec: [GatewayConfiguration],
}
EXCUSES = {"skip", "skipif", "xfail", "importorskip"}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif typing.get_origin(annotation) is not typing.Literal:
        for part in typing.get_args(annotation):
            yield from _models(part)


def _fields(model: type[BaseModel], prefix: str, decided: set[str]) -> Iterator[str]:
    """Paths of a model: down to what is decided as a whole, else to the leaves."""
    for name, field in model.model_fields.items():
        path = f"{prefix}{name}"
        below = list(_models(field.annotation))
        if name == "configuration":
            below = CONFIGURATIONS.get(model, below)
        if path in decided or not below:
            yield path
        else:
            for inner in below:
                yield from _fields(inner, f"{path}.", decided)


@pytest.mark.parametrize(
    ("model", "prefix", "proofs", "not_built"),
    [
        (RunSpec, "", RUN_PROOFS, RUN_NOT_BUILT),
        (FleetSpec, "fleet.", FLEET_PROOFS, FLEET_NOT_BUILT),
        (GatewaySpec, "", GATEWAY_PROOFS, GATEWAY_NOT_BUILT),
    ],
)
def test_every_field_is_decided_once(
    model: type[BaseModel], prefix: str, proofs: Mapping[str, str], not_built: Mapping[str, NotBuilt]
) -> None:
    refused = {f"{prefix}{path}" for path in not_built}
    decided = proofs.keys() | refused
    found = set(_fields(model, prefix, decided))
    assert found - decided == set(), "fields that are neither proven nor refused"
    assert decided - found == set(), "paths that no model has"
    assert proofs.keys() & refused == set(), "fields that are proven, and refused"


def test_the_walk_looks_into_unions() -> None:
    assert "repo_data.repo_branch" in set(_fields(RunSpec, "", set()))


@cache
def _tests_of(file: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((ROOT / file).read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


@each("proof", sorted({*RUN_PROOFS.values(), *FLEET_PROOFS.values(), *GATEWAY_PROOFS.values()}))
@pytest.mark.slow
def test_every_proof_is_a_test_that_runs(proof: str) -> None:
    file, _, node = proof.partition("::")
    name, _, case = node.partition("[")
    test = _tests_of(file)[name]
    assert name.startswith("test_") and Path(file).name.startswith("test_"), "pytest doesn't collect it"
    used = {part.attr for part in ast.walk(test) if isinstance(part, ast.Attribute)}
    assert not used & EXCUSES, "it may be left out"
    if case:
        module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
        assert case.removesuffix("]") in module.CASES
