"""The support table covers the language: every field exactly once, refused by name or proven."""

from __future__ import annotations

import ast
import importlib
import re
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.runs import RunSpec, TaskConfiguration
from chalicelib.planning.support import FLEET, RUN, NotBuilt, Supported, fleet_refusals, refusals
from tests.world.nouns import fleet_spec, run_spec

TESTS = Path(__file__).parents[2]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif typing.get_origin(annotation) is not typing.Literal:
        for part in typing.get_args(annotation):
            yield from _models(part)


def _fields(model: type[BaseModel], prefix: str, table: dict[str, Any]) -> Iterator[str]:
    """Paths of a model: down to what the table decides as a whole, else to the leaves."""
    for name, field in model.model_fields.items():
        path = f"{prefix}{name}"
        below = list(_models(field.annotation))
        if path == "configuration":
            below = [TaskConfiguration]  # other types are refused by `configuration.type`
        if path in table or not below:
            yield path
        else:
            for inner in below:
                yield from _fields(inner, f"{path}.", table)


@pytest.mark.parametrize(("model", "prefix", "table"), [(RunSpec, "", RUN), (FleetSpec, "fleet.", FLEET)])
def test_every_field_is_decided_once(model: type[BaseModel], prefix: str, table: dict[str, Any]) -> None:
    found = set(_fields(model, prefix, table))
    assert found - table.keys() == set(), "fields that the table doesn't decide"
    assert table.keys() - found == set(), "paths in the table that no model has"


# One value, not the default, for every refused field.
VALUES: dict[str, Any] = {
    "reservation": "cr-1",
    "utilization_policy": {"min_gpu_utilization": 10, "time_window": "10m"},
    "startup_order": "master-first",
    "stop_criteria": "master-done",
    "schedule": {"cron": "0 9 * * *"},
    "instances": ["local-0"],
    "backend_options": [{"type": "vastai", "offer_order": "price"}],
    "fleets.project": ["other/gpus"],
    "nodes": 2,
    "groups": [{"nodes": 2, "commands": ["a"]}],
    "ports": [8000],
    "volumes": ["/data:/data"],
    "docker": True,
    "dstack": True,
    "setup": ["a"],
    "working_dir": "/x",
    "resources.shm_size": "1GB",
    "placement": "cluster",
    "retry": {"on_events": ["no-capacity"], "duration": "1h"},
    "home_dir": "/home/user",
    "ssh_config": {"user": "u", "identity_file": "k", "hosts": ["10.0.0.1"]},
}
REMOTE = {
    "repo_type": "remote",
    "repo_name": "r",
    "repo_branch": "main",
    "repo_hash": "abc",
    "repo_diff": "d",
    "repo_config_name": "n",
    "repo_config_email": "e",
}


def raw_with(path: str) -> dict[str, Any]:
    """A spec in which only `path` is set."""
    raw: dict[str, Any] = {"configuration": {"type": "task", "commands": ["a"]}, "profile": {}}
    if path.startswith("fleet."):
        raw["configuration"] = {"type": "fleet", "nodes": "0..2"}
        path = path.removeprefix("fleet.")
    if path == "configuration.groups":
        del raw["configuration"]["commands"]
    if path.startswith("repo_data."):
        raw["repo_data"] = REMOTE
        return raw
    head, _, name = path.partition(".") if path.split(".")[0] in ("configuration", "profile") else ("", "", path)
    place = raw[head] if head else raw
    *parents, last = name.removesuffix(".project").split(".")
    for step in parents:
        place = place.setdefault(step, {})
    place[last] = VALUES[name]
    return raw


@pytest.mark.parametrize("path", [path for path, verdict in (RUN | FLEET).items() if isinstance(verdict, NotBuilt)])
def test_a_refused_field_is_named(path: str) -> None:
    raw = raw_with(path)
    problems = (
        fleet_refusals(FleetSpec.model_validate(raw))
        if path.startswith("fleet.")
        else refusals(RunSpec.model_validate(raw))
    )
    named = {problem.path: problem for problem in problems}
    found = named[path.removeprefix("fleet.")]
    assert path.rpartition(".")[2] in found.message
    assert found.hint


@cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("proof", sorted({v.proof for v in (RUN | FLEET).values() if isinstance(v, Supported)}))
def test_a_supported_field_has_its_proof(proof: str) -> None:
    file, _, node = proof.partition("::")
    name, _, case = node.partition("[")
    assert name in functions_of(file)
    if case:
        module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
        assert case.removesuffix("]") in module.CASES


def test_a_plain_task_and_a_plain_fleet_pass() -> None:
    assert refusals(run_spec()) == []
    assert fleet_refusals(fleet_spec(nodes="0..2")) == []


def test_what_means_nothing_is_no_offence() -> None:
    spec = run_spec({"startup_order": "any"}, nodes=1, stop_criteria="all-done", docker=False, privileged=False)
    assert refusals(spec) == []


@pytest.mark.parametrize("kind", [{"type": "dev-environment"}, {"type": "service", "port": 80, "commands": ["a"]}])
def test_other_types_are_refused_by_name(kind: dict[str, Any]) -> None:
    (found,) = refusals(RunSpec.model_validate({"configuration": kind}))
    assert found.path == "configuration.type"
    assert str(kind["type"]) in found.message


def test_a_field_of_the_profile_is_named_once_where_it_was_written() -> None:
    from chalicelib.planning.jobs import effective

    spec = effective(run_spec({"reservation": "cr-1"}))
    assert [problem.path for problem in refusals(spec)] == ["profile.reservation"]


def test_a_variable_without_a_value_is_named() -> None:
    (found,) = refusals(run_spec(env=["TOKEN"]))
    assert found.path == "configuration.env.TOKEN"
    assert re.search("export TOKEN", found.hint)


def test_a_fleet_without_nodes_is_told_what_to_write() -> None:
    (found,) = fleet_refusals(fleet_spec())
    assert "nodes: 0..2" in found.hint


def test_the_walk_looks_into_unions() -> None:
    assert "repo_data.repo_branch" in set(_fields(RunSpec, "", {}))
