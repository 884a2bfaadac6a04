"""Secrets are marked where a field is declared, and found wherever the model is used."""

from __future__ import annotations

import importlib
import pkgutil
import re
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

import chalicelib.domain
from chalicelib.backends.registry import config_models
from chalicelib.configuration.server import ServerFile
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.specs.fleets import FleetSpec, SSHKey
from chalicelib.domain.specs.reading import Spec
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.specs.secrecy import HIDDEN, SECRET, Confidential, Leaf, Secret, names_of, replaced, secrets_of

SENSITIVE = re.compile(r"key|pass|token|secret|private|cred|auth", re.IGNORECASE)
A_PATH = re.compile(r"_file$")
NOT_SECRET = {  # what is named like a secret and isn't one
    "EnvSentinel.key": "the name of a variable",
    "KubernetesContext.image_pull_secrets": "names of secrets that the cluster has",
    "KubernetesToleration.key": "the name of a taint",
    "KubernetesNodeRequirement.key": "the name of a label",
    "KubernetesPodTerm.topology_key": "the name of a label",
    "KubernetesTopology.key": "the name of a label",
    "RunSpec.ssh_key_pub": "a public key",
    "TGIChatModel.eos_token": "a word of a model's language",
}


def specs() -> list[type[BaseModel]]:
    """Every model that a person or a client fills in, and what jobs are derived into."""
    assert ServerFile and config_models()  # they load models of others
    for module in pkgutil.walk_packages(chalicelib.domain.__path__, "chalicelib.domain."):
        importlib.import_module(module.name)
    return [JobSpec, *sorted(set(_below(Spec)), key=lambda model: f"{model.__module__}.{model.__name__}")]


def _below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for inner in model.__subclasses__():
        if inner.__module__.startswith("chalicelib."):
            yield inner
        yield from _below(inner)


def holds_text(annotation: Any) -> bool:
    return annotation in (str, Any) or any(holds_text(part) for part in typing.get_args(annotation))


def marked(model: type[BaseModel], field: str) -> bool:
    return isinstance(secrets_of(model).get(field), Leaf)


def test_a_text_that_is_named_like_a_secret_is_marked_as_one() -> None:
    """A `Secret`, or listed as harmless."""
    unmarked = {
        f"{model.__name__}.{name}"
        for model in specs()
        for name, field in model.model_fields.items()
        if SENSITIVE.search(name) and not A_PATH.search(name) and holds_text(field.annotation)
        if not marked(model, name)
    }
    assert unmarked - NOT_SECRET.keys() == set()


def test_a_model_with_secrets_of_its_own_never_prints_its_fields() -> None:
    secretive = {model for model in specs() if any(marked(model, name) for name in model.model_fields)}
    assert [model for model in secretive - {JobSpec} if not issubclass(model, Confidential)] == []


def test_what_is_listed_as_harmless_is_there() -> None:
    there = {f"{model.__name__}.{name}" for model in specs() for name in model.model_fields}
    assert NOT_SECRET.keys() <= there


def test_a_key_isnt_printed() -> None:
    assert "hush" not in repr(SSHKey(public="p", private="hush"))
    spec = {"ssh_config": {"hosts": ["a"], "ssh_key": {"public": "p", "private": "hush"}}}
    assert "hush" not in repr(FleetSpec.model_validate({"configuration": {"type": "fleet", **spec}}))


def test_where_the_secrets_of_specs_are() -> None:
    key = {"ssh_key": {"private": Leaf(None)}}
    host = {**key, "proxy_jump": key}
    assert secrets_of(FleetSpec) == {"configuration": {"ssh_config": {**host, "hosts": {"*": host}}}}
    password = {"registry_auth": {"password": Leaf(HIDDEN)}}
    assert secrets_of(RunSpec) == {"configuration": password}
    assert secrets_of(JobSpec) == {**password, "ssh_key": {"private": Leaf(None)}}
    assert names_of(secrets_of(FleetSpec)) == {"private"}


class _Inner(Confidential):
    type: Literal["inner"] = "inner"
    code: Secret | None = None
    pin: Annotated[str, SECRET] = Field(default="", description="A number, often.")


class _Other(Spec):
    inner: _Inner | None = None
    open: str = ""


class _Outer(Spec):
    either: _Inner | _Other | str | None = None
    several: tuple[_Inner | str, ...] = ()
    table: dict[str, str] | None = None


def test_secrets_are_found_in_arms_of_unions_in_lists_and_deep_down() -> None:
    inner = {"code": Leaf(None), "pin": Leaf(HIDDEN)}
    assert secrets_of(_Outer) == {"either": {**inner, "inner": inner}, "several": {"*": inner}}


def test_only_secrets_are_replaced_and_what_is_malformed_stays() -> None:
    written = {
        "either": {"inner": {"code": "a", "pin": 1234, "else": "b"}, "open": "c"},
        "several": ["d", {"pin": "e", "code": None}, 5],
        "table": {"code": "f"},
        "unknown": [{"pin": "g"}],
    }
    found = replaced(secrets_of(_Outer), written, lambda text, leaf: f"<{text}>" if leaf.shown else leaf.shown)
    assert found == {
        "either": {"inner": {"code": None, "pin": "<1234>", "else": "b"}, "open": "c"},
        "several": ["d", {"pin": "<e>", "code": None}, 5],
        "table": {"code": "f"},
        "unknown": [{"pin": "g"}],
    }
    odd = {"either": {"inner": [1]}, "several": {"pin": "x"}}
    assert replaced(secrets_of(_Outer), odd, lambda text, leaf: "never") == odd
    assert written["either"]["inner"]["pin"] == 1234  # type: ignore[index]
