"""`${{ … }}` in every text of every configuration: filled in by somebody, or refused with its place."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from chalicelib.configuration.providers import PROVIDERS
from chalicelib.configuration.references import MAX_PROBLEMS, MOST_REFERENCES, misplaced, secrets_named
from chalicelib.domain.specs.env import EnvSentinel
from chalicelib.domain.specs.fleets import FleetConfiguration, FleetSpec
from chalicelib.domain.specs.gateways import GatewayConfiguration, GatewaySpec
from chalicelib.domain.specs.profiles import Profile
from chalicelib.domain.specs.providers import ProviderUnion
from chalicelib.domain.specs.runs import DevEnvironmentConfiguration, RunSpec, TaskConfiguration
from chalicelib.domain.specs.services import ServiceConfiguration
from chalicelib.domain.specs.volumes import AnyVolumeConfiguration, VolumeSpec

Leaf = tuple[tuple[str, ...], Any]
RUNS: tuple[type[BaseModel], ...] = (TaskConfiguration, ServiceConfiguration, DevEnvironmentConfiguration)
KINDS: list[tuple[type[BaseModel], str, Any]] = [
    *((RunSpec, "configuration", each) for each in RUNS),
    (RunSpec, "profile", Profile),
    (FleetSpec, "configuration", FleetConfiguration),
    (FleetSpec, "profile", Profile),
    (GatewaySpec, "configuration", GatewayConfiguration),
    (VolumeSpec, "configuration", AnyVolumeConfiguration),
]


def leaves(annotation: Any, text: str) -> Iterator[Leaf]:
    """Values of this type that hold the text, each in another place."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation is str:
        yield (), text
    elif origin is Annotated:
        for part in arms(parts):
            yield from leaves(part, text)
    elif origin in (Union, UnionType):
        for part in parts:
            yield from leaves(part, text)
    elif origin is tuple:
        yield from ((("0", *path), (value,)) for path, value in leaves(parts[0], text))
    elif origin is dict:
        yield from ((("KEY", *path), {"KEY": value}) for path, value in leaves(parts[1], text))
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items() if annotation is not EnvSentinel else ():
            for path, value in leaves(field.annotation, text):
                yield (name, *path), constructed(annotation, {name: value})
    else:
        known = annotation in (int, float, bool, NoneType) or origin is Literal
        assert known or issubclass(annotation, str), f"what texts can {annotation} hold?"


def arms(parts: tuple[Any, ...]) -> list[Any]:
    """What an annotated type may be; the models of a union that is the providers' come from their table."""
    for each in parts[1:]:
        if isinstance(each, ProviderUnion):
            kinds = PROVIDERS.kinds(each.part)
            return [*each.own.values(), *(PROVIDERS.model(each.part, kind) for kind in kinds)]
    return [parts[0]]


def constructed(model: type[BaseModel], given: dict[str, Any]) -> Any:
    """Nothing is checked, and what it needs besides isn't there."""
    needed = {name: None for name, field in model.model_fields.items() if field.is_required()}
    return model.model_construct(**{**needed, **given})


def everywhere(text: str) -> Iterator[tuple[str, Any]]:
    for spec, part, kind in KINDS:
        for path, value in leaves(kind, text):
            base: dict[str, Any] = {"configuration": FleetConfiguration()} if part == "profile" else {}
            made = constructed(spec, {**base, part: value})
            if path != ("name",) or part == "profile":  # a configuration's name has rules of its own
                yield ".".join((part, *path)), made


def misplaced_in(spec: Any) -> list[str]:
    return [problem.path for problem in misplaced(spec)]


@pytest.mark.parametrize("text", ["${{ secret.b }}", "a ${{ env.B }} z", "${{ never closed"])
@pytest.mark.slow
def test_what_names_nothing_is_refused_wherever_it_is_written(text: str) -> None:
    places = list(everywhere(text))
    assert [path for path, spec in places if misplaced_in(spec) != [path]] == [] and len(places) > 200


@pytest.mark.slow
def test_the_text_itself_may_be_anywhere() -> None:
    for text in ("$${{ secret.b }}", "$$${{", "$${{ never closed", "{{ x }}", "${x}"):
        for path, spec in everywhere(text):
            assert misplaced_in(spec) == [], path


ACCEPTED = {
    "${{ secrets.B }}": {
        *("configuration.env.KEY", "configuration.registry_auth.username", "configuration.registry_auth.password"),
        *("configuration.certificate.certificate", "configuration.certificate.key"),
    },
    "${{ groups[0].nodes[0].IP_ADDRESS }}": {"configuration.commands.0", "configuration.groups.0.commands.0"},
    "${{groups[0].replicas[0].IP_ADDRESS}}": {"configuration.commands.0", "configuration.groups.0.commands.0"},
    "v-${{ dstack.node_rank }}": {"configuration.volumes.0.name", "configuration.volumes.0.name.0"},
    "${{ run.project_name }}.example.com": {"configuration.domain"},
    "${{ run.args }}": {"configuration.commands.0", "configuration.groups.0.commands.0"},  # left over: meant as text
}


@pytest.mark.parametrize("text", ACCEPTED)
@pytest.mark.slow
def test_what_is_filled_in_is_accepted_there_and_nowhere_else(text: str) -> None:
    assert {path for path, spec in everywhere(text) if not misplaced_in(spec)} == ACCEPTED[text]


def test_addresses_are_those_of_the_type() -> None:
    task = run(commands=["${{ groups[0].replicas[0].IP_ADDRESS }}"])
    service = run(type="service", port=80, commands=["${{ groups[0].nodes[0].IP_ADDRESS }}"])
    for spec, right in ((task, "nodes"), (service, "replicas")):
        (problem,) = misplaced(spec)
        assert f"there is `${{{{ groups[0].{right}[0].IP_ADDRESS }}}}`" in problem.hint


def run(**config: Any) -> RunSpec:
    base: dict[str, Any] = {} if config.get("type") == "dev-environment" else {"commands": ["x"]}
    return RunSpec.model_validate({"configuration": {"type": "task", **base, **config}})


@pytest.mark.parametrize(
    ("config", "path", "text"),
    [
        ({"env": {"A": "${{ secret.b }}"}}, "env.A", "did you mean `${{ secrets.b }}`?"),
        ({"env": {"A": "${{ secrets['b'] }}"}}, "env.A", "did you mean `${{ secrets.b }}`?"),
        ({"env": {"A": "${{ secrets }}"}}, "env.A", "there is `${{ secrets.NAME }}`; `$${{` is the text `${{`"),
        ({"env": {"A": "${{ github.ref }}"}}, "env.A", "there is `${{ secrets.NAME }}`"),
        ({"env": {"A": "${{ env.B }}", "B": "x"}}, "env.A", "`env` works in `registry_auth` and `probes`"),
        ({"env": {"A": "${{ secrets.b"}}, "env.A", "`${{` is never closed (add `}}`"),
        (
            {"commands": ["x", "curl -H ${{ secrets.b }}"]},
            "commands.1",
            "`${{ secrets.b }}` isn't filled in here (`secrets` works in `env` and `registry_auth`: set "
            "`B` to `${{ secrets.b }}` in `env`, and use `$B` here; `$${{` is the text `${{`)",
        ),
        ({"commands": ["${{ secret.b }}"]}, "commands.0", "set `B` to `${{ secrets.b }}` in `env`"),
        (  # no shell reads it, so `$TAG` would be no advice
            {"image": "ubuntu:${{ secrets.tag }}"},
            "image",
            "isn't filled in here (`secrets` works in `env` and `registry_auth`; `$${{` is the text `${{`)",
        ),
        (
            {"type": "dev-environment", "ide": "vscode", "init": ["./get ${{ secrets.b }}"]},
            "init.0",
            "and use `$B` here",
        ),
        ({"image": "ubuntu:${{ env.TAG }}"}, "image", "isn't filled in here"),
        ({"volumes": [{"name": "v${{ dstack.node }}", "path": "/v"}]}, "volumes.0.name", "`${{ dstack.node_rank }}`"),
        ({"user": "${{ x }}"}, "user", "`${{ x }}` isn't known here (`$${{` is the text `${{`)"),
        (
            {
                "type": "service",
                "port": 80,
                "env": {"TOKEN": "x"},
                "probes": [{"type": "http", "url": "/", "headers": [{"name": "A", "value": "${{ env.TOKN }}"}]}],
            },
            "probes.0.headers.0.value",
            "did you mean `${{ env.TOKEN }}`?",
        ),
        (
            {
                "type": "service",
                "port": 80,
                "env": {"TOKEN": "Bearer ${{ secrets.b }}", "PLAIN": "x"},
                "probes": [{"type": "http", "url": "/?${{ env.PLAIN }}&${{ env.TOKEN }}"}],
            },
            "probes.0.url",
            "`${{ env.TOKEN }}` isn't filled in here: a secret is in that variable",
        ),
    ],
)
def test_what_is_told(config: dict[str, Any], path: str, text: str) -> None:
    (problem,) = misplaced(run(**config))
    assert problem.path == f"configuration.{path}" and problem.code == "invalid-interpolation"
    assert text in problem.text


def test_a_probe_may_name_the_jobs_variables() -> None:
    probe = {"type": "http", "url": "/${{ env.P }}", "method": "post", "body": "${{env.P}}"}
    assert misplaced(run(type="service", port=80, env={"P": "x"}, probes=[probe])) == []


def test_what_clients_left_in_commands_and_is_none_of_ours_is_text() -> None:
    """The genuine client takes the escapes out before it sends commands."""
    texts = ("${{ github.ref }}", "${{ x }}", "${{ }}", "${{ matrix.os == 1 }}", "${{ run.args }}")
    assert misplaced(run(commands=list(texts))) == []
    for text, reference in product(("${{ %s.a }}", "${{ %s }}", "${{%s[0]}}"), ("secrets", "secret", "env", "group")):
        assert misplaced_in(run(commands=[text % reference])) == ["configuration.commands.0"], text % reference


def test_everything_is_told_once_and_at_once() -> None:
    spec = run(env={"A": "${{ x }} ${{ x }} ${{ y }}", "${{ z }}": "1"}, image="${{ a.b }}", user="${{ u")
    assert sorted(misplaced_in(spec)) == [
        f"configuration.{name}" for name in ("env", "env.A", "env.A", "image", "user")
    ]


def test_secrets_are_named_where_they_are_filled_in() -> None:
    env = {"A": "${{ secrets.a }}:${{ secrets.b }}", "B": "c"}
    auth = {"username": "$${{ secrets.no }}", "password": "${{secrets.p-1}}"}
    assert sorted(secrets_named(run(env=env, image="i", registry_auth=auth, commands=["${{ secrets.d }}"]))) == [
        ("configuration.env.A", "a"),
        ("configuration.env.A", "b"),
        ("configuration.registry_auth.password", "p-1"),
    ]


def test_the_work_is_bounded() -> None:
    many = " ".join(f"${{{{ s{number}.x }}}}" for number in range(MOST_REFERENCES + 1))
    found = misplaced(run(env={"A": "${{ x }}", "B": many, "C": "${{ y }}"}))
    assert [(problem.path, problem.code) for problem in found] == [
        ("configuration.env.A", "invalid-interpolation"),
        ("configuration.env.B", "too-large"),
    ]
    some = " ".join(f"${{{{ s{number}.x }}}}" for number in range(100))
    assert len(misplaced(run(env={"A": some}))) == MAX_PROBLEMS
