"""What counts as a difference between two specs."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.specs.runs import FileArchiveMapping, RunSpec
from chalicelib.usecases.specs import changed_fields, needs_new_run
from tests.world import nouns as b


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ({}, {}, []),
        ({"name": "a"}, {"name": "b"}, []),
        ({}, {"priority": 0}, []),
        ({}, {"priority": 1}, ["configuration.priority"]),
        ({"env": {"A": "1"}}, {"env": {"A": "2"}}, ["configuration.env"]),
        ({"image": "x"}, {"image": None}, ["configuration.image"]),
        ({"run_name": "a"}, {"run_name": "b"}, []),
        ({"profile": {}}, {"profile": None}, []),
        ({"profile": {"max_price": 1.0}}, {"profile": None}, ["profile"]),
    ],
)
def test_what_of_a_run_is_another(old: dict[str, Any], new: dict[str, Any], names: list[str]) -> None:
    def spec(profile: dict[str, Any] | None = None, **config: Any) -> Any:
        return b.run_spec(profile, **config)

    assert changed_fields(spec(**old), spec(**new)) == names
    assert changed_fields(spec(**new), spec(**old)) == names


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ({"name": "a"}, {"name": "b"}, []),
        ({}, {"placement": "any"}, []),
        ({}, {"placement": "cluster"}, ["configuration.placement"]),
        ({"nodes": 1}, {"nodes": 2}, ["configuration.nodes"]),
    ],
)
def test_what_of_a_fleet_is_another(old: dict[str, Any], new: dict[str, Any], names: list[str]) -> None:
    assert changed_fields(b.fleet_spec(**old), b.fleet_spec(**new)) == names


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ({}, {"priority": 5}, []),
        ({}, {"image": "x"}, ["configuration.image"]),
        ({"resources": {"cpu": "x86:2"}}, {"resources": {"cpu": "2"}}, []),
        ({"resources": {"cpu": "2"}}, {"resources": {"cpu": "x86:2"}}, ["configuration.resources"]),
        ({"resources": {"cpu": "x86:2"}}, {"resources": {"cpu": "4"}}, ["configuration.resources"]),
        ({"files": ["a"]}, {"files": ["./a"]}, []),
    ],
)
def test_what_a_live_run_cant_take_over(old: dict[str, Any], new: dict[str, Any], names: list[str]) -> None:
    assert needs_new_run(b.run_spec(**old), b.run_spec(**new)) == names


def test_a_router_that_its_workers_were_told_of_stays_as_they_do() -> None:
    def dynamo(workers: int = 1, command: str = "w", **more: Any) -> RunSpec:
        groups = [
            {"replicas": 1, "commands": ["r"], "router": {"type": "dynamo"}},
            {"replicas": workers, "commands": [command]},
        ]
        return RunSpec.model_validate({"configuration": {"type": "service", "port": 80, "groups": groups, **more}})

    assert needs_new_run(dynamo(), dynamo(workers=3)) == []
    assert needs_new_run(dynamo(), dynamo(command="other")) == ["configuration.groups"]
    assert needs_new_run(dynamo(), dynamo(env={"A": "1"})) == ["configuration.env"]


def test_files_with_other_content_need_a_new_run() -> None:
    old, new = b.run_spec(files=["a"]), b.run_spec(files=["b"])
    sent = new.with_(file_archives=(FileArchiveMapping(id="1", path="b"),))
    assert needs_new_run(old, new) == []
    assert needs_new_run(old, sent) == ["configuration.files", "file_archives"]
