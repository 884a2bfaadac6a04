"""Bodies from clients: read as they are, given back to the letter, and refused in the same words as a file."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from chalicelib.configuration.problems import problems_of
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.gateways import GatewaySpec
from chalicelib.domain.specs.runs import RunSpec

BODIES = json.loads(Path(__file__).with_name("bodies.json").read_text(encoding="utf-8"))
MODELS: dict[str, type[BaseModel]] = {"run": RunSpec, "fleet": FleetSpec, "gateway": GatewaySpec}


@pytest.mark.parametrize(("kind", "body"), BODIES)
def test_recorded_bodies_are_given_back_to_the_letter(kind: str, body: dict[str, Any]) -> None:
    assert MODELS[kind].model_validate(body).model_dump(mode="json") == body


def problems_in(body: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as caught:
        RunSpec.model_validate(body)
    return [(problem.path, problem.code) for problem in problems_of(caught.value)]


def test_unknown_keys_are_refused_by_name_at_every_depth() -> None:
    task = {"type": "task", "commands": ["a"], "comands": [], "resources": {"gpu": {"naem": "A100"}}}
    assert problems_in({"configuration": task, "run_nam": "a"}) == [
        ("configuration.resources.gpu.naem", "unknown-key"),
        ("configuration.comands", "unknown-key"),
        ("run_nam", "unknown-key"),
    ]


def test_an_unknown_key_that_says_nothing_is_a_newer_clients() -> None:
    task = {"type": "task", "commands": ["a"], "wings": None, "resources": {"tail": None, "cpu": {"fin": None}}}
    spec = RunSpec.model_validate({"configuration": task, "beak": None})
    assert "wings" not in spec.model_dump()["configuration"]


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        ({}, [("configuration", "missing")]),
        ([], [("", "wrong-type")]),
        ({"configuration": None}, [("configuration", "wrong-type")]),
        ({"configuration": {}}, [("configuration.type", "missing")]),
        ({"configuration": {"type": "tsk"}}, [("configuration.type", "unknown-value")]),
        ({"configuration": {"type": ["task"]}}, [("configuration.type", "unknown-value")]),
        ({"configuration": {"type": "task"}}, [("configuration", "missing")]),
        (
            {"configuration": {"type": "task", "commands": ["a"]}, "repo_data": {"repo_type": "svn"}},
            [("repo_data.repo_type", "unknown-value")],
        ),
    ],
)
def test_bodies_that_are_no_spec(body: Any, problems: list[tuple[str, str]]) -> None:
    assert problems_in(body) == problems


def test_the_same_words_as_for_a_file() -> None:
    from chalicelib.configuration.parse import parse
    from chalicelib.errors import Invalid

    fields = {"type": "task", "commands": "ls", "max_duration": "1h30m", "resources": {"gpu": "A100::2"}, "gpu": 1}
    with pytest.raises(Invalid) as file:
        parse(json.dumps(fields))
    with pytest.raises(ValidationError) as body:
        RunSpec.model_validate({"configuration": fields})
    problems = {(problem.path, problem.message, problem.hint) for problem in file.value.problems}
    prefix = "configuration."
    assert problems == {(p.path.removeprefix(prefix), p.message, p.hint) for p in problems_of(body.value)}
