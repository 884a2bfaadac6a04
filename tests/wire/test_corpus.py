"""The corpus is what it claims to be: large, and with every field of the language in at least two cases."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from chalicelib.configuration.parse import TYPES, parse
from chalicelib.configuration.providers import FROM_FILE, PROVIDERS
from chalicelib.domain.specs.gateways import ProviderGatewayCertificate
from chalicelib.domain.specs.profiles import Profile, ProviderOptions
from chalicelib.domain.specs.volumes import VolumeConfiguration
from tests.wire.corpus import corpus
from tests.wire.differences import DIFFERENCES, PAGE, page

TWICE = 2
FILLED_IN = {"SSHKey.public", "SSHKey.private", "ssh_key"}  # by the client, not by a person
NOT_SENT = {
    "PresetConfiguration",
    "AzureVolumeConfiguration",
    "CrusoeVolumeConfiguration",
    "NebiusVolumeConfiguration",
}  # the genuine client knows none
OF_PRESETS = ("keep_service", "trials", "previous")  # a preset sends nothing of its own
REFUSED = {"DevEnvironmentConfiguration.entrypoint"}  # by both, though it is a field of every run
_HOSTS = {f"GatewayConfiguration.{name}" for name in ("fleet", "http_port", "https_port")}
_GIVEN = {f"GivenGatewayCertificate.{field}" for field in ("type", "certificate", "key")}
OWN = {"Schedule.timezone", *_HOSTS, *_GIVEN}  # which the genuine client doesn't know: see `differences.py`


def used(found: Any, seen: Counter[str]) -> None:
    """Counts every field that was set, by its model, at every depth."""
    if isinstance(found, BaseModel):
        seen.update(f"{type(found).__name__}.{name}" for name in found.model_fields_set)
        for name in found.model_fields_set:
            used(getattr(found, name), seen)
    elif isinstance(found, list | tuple):
        for item in found:
            used(item, seen)
    elif isinstance(found, dict):
        used(list(found.values()), seen)


def models(model: type[BaseModel], found: dict[str, type[BaseModel]]) -> None:
    """A model and all the models of its fields."""
    if model.__name__ in found:
        return
    found[model.__name__] = model
    for field in model.model_fields.values():
        for part in parts(field.annotation):
            models(part, found)


def parts(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in getattr(annotation, "__args__", ()) for model in parts(argument)]


def of_providers() -> list[type[BaseModel]]:
    """The models that no annotation names."""
    parts = ("volume", "options", "certificate")
    return [PROVIDERS.model(part, kind) for part in parts for kind in PROVIDERS.kinds(part)]


def written() -> Counter[str]:
    """How often each field is set in what is sent; every case counts a field once."""
    total: Counter[str] = Counter()
    for case in corpus():
        if case.refused:
            continue
        seen: Counter[str] = Counter()
        used(parse(case.file), seen)
        for name, text in case.files.items():
            if name.rpartition("/")[2].startswith("profiles.y"):
                for profile in yaml.safe_load(text)["profiles"]:
                    used(Profile.model_validate(profile, context=FROM_FILE), seen)
        total.update(seen.keys())
    return total


def test_every_field_is_in_two_cases() -> None:
    known: dict[str, type[BaseModel]] = {}
    for kind in [*TYPES.values(), *of_providers(), Profile]:
        if kind.__name__ not in NOT_SENT:
            models(kind, known)
    seen = written()
    fields = {f"{name}.{field}" for name, model in known.items() for field in model.model_fields}
    rare = {field for field in fields if seen[field] < TWICE and not FILLED_IN & {field, field.rpartition(".")[2]}}
    general = (VolumeConfiguration, ProviderGatewayCertificate, ProviderOptions)
    abstract = {f"{model.__name__}.{field}" for model in general for field in model.model_fields}
    assert sorted(rare - abstract - REFUSED - OWN) == []


@pytest.mark.parametrize(("refused", "least"), [(False, 300), (True, 80)])
def test_there_are_many(refused: bool, least: int) -> None:
    cases = [case for case in corpus() if case.refused == refused]
    assert len(cases) >= least
    assert len({repr(replace(case, name="")).replace(case.name, "") for case in cases}) == len(cases)


def test_every_flag_of_apply_is_in_a_case() -> None:
    """Those that change what is sent."""
    from cli.commands.apply import app
    from cli.screen.parameters import Command

    (command,) = (found for found in app.registered_commands if found.name == "apply")
    assert command.cls is not None and issubclass(command.cls, Command)
    import typer

    options = typer.main.get_command(app).params
    args = {arg for case in corpus() for arg in case.argv} | {w for one in DIFFERENCES for w in one.flags}
    missing = [
        option.name
        for option in options
        if option.param_type_name == "option"
        and option.name not in {*OF_PRESETS, "web"}  # which only opens a page
        and not args & {*option.opts, *option.secondary_opts}
    ]
    assert missing == []


def test_the_page_of_differences_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.wire.differences"
