"""Flags of `apply`, merged into the configuration that they override.

A flag's text is read by the same models as a file, so `--gpu A100:2` means the same as `gpu: A100:2` and is refused
with the same message. Lists replace lists; ports and variables are added, and replace those of the same port or name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from chalicelib.configuration.problems import problems_of
from chalicelib.configuration.providers import FROM_FILE
from chalicelib.domain.specs.env import read_env
from chalicelib.errors import Problem, WrongFlag

C = TypeVar("C", bound=BaseModel)

_FLAGS = {
    "backends": "--backend",
    "regions": "--region",
    "instance_types": "--instance-type",
    "fleets": "--fleet",
    "ports": "--port",
    "creation_policy": "--reuse",
}


@dataclass(frozen=True)
class Overrides:
    """The flags; those not given are None or empty."""

    name: str | None = None
    env: tuple[str, ...] = ()  # NAME=value or NAME
    ports: tuple[str, ...] = ()
    cpu: str | None = None
    gpu: str | None = None
    memory: str | None = None
    disk: str | None = None
    backends: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    instance_types: tuple[str, ...] = ()
    fleets: tuple[str, ...] = ()
    spot_policy: str | None = None
    retry: bool | None = None
    retry_duration: str | None = None
    max_price: float | None = None
    max_duration: str | None = None
    idle_duration: str | None = None
    creation_policy: str | None = None

    def flag_of(self, path: str) -> str | None:
        """The flag that sets a path of the configuration."""
        first, _, below = path.partition(".")
        flags_given = _given_flags(self).get(first)
        if first == "env":
            return "--env" if below in {item.partition("=")[0] for item in self.env} else None
        if first == "resources" and flags_given is not None:
            flags_given = flags_given.get(below.partition(".")[0])
        if first == "retry" and self.retry_duration is not None:
            return "--retry-duration"
        return _flag(path) if flags_given is not None else None


def overridden(configuration: C, flags: Overrides) -> C:
    """The configuration with the flags applied. Raises WrongFlag if one is invalid, or doesn't exist for this type."""
    flags_given = _given_flags(flags)
    if not flags_given:
        return configuration
    model = type(configuration)
    if strangers := flags_given.keys() - model.model_fields.keys():
        kind = getattr(configuration, "type", "configuration")
        raise WrongFlag(
            [
                Problem(f"a {kind} has no `{name}`", hint=f"leave {_flag(name)} out", code="unknown-key")
                for name in sorted(strangers)
            ]
        )
    fields = configuration.model_dump(mode="json")
    for name, value in flags_given.items():
        fields[name] = _together(name, fields.get(name), value)
    try:
        return model.model_validate(fields, context=FROM_FILE)
    except ValidationError as error:
        found = problems_of(error, model=model)
    raise WrongFlag([Problem(p.message, _flag(p.path), hint=p.hint, code=p.code) for p in found])


def _given_flags(flags: Overrides) -> dict[str, Any]:
    flags_given: dict[str, Any] = {
        field: value
        for field in ("name", "max_price", "max_duration", "idle_duration", "spot_policy", "creation_policy", "retry")
        if (value := getattr(flags, field)) is not None
    }
    flags_given |= {
        field: list(value)
        for field in ("backends", "regions", "instance_types", "fleets", "env", "ports")
        if (value := getattr(flags, field))
    }
    resources = {
        field: value for field in ("cpu", "gpu", "memory", "disk") if (value := getattr(flags, field)) is not None
    }
    if resources:
        flags_given["resources"] = resources
    if flags.retry_duration is not None:
        flags_given["retry"] = {"on_events": None, "duration": flags.retry_duration}
    return flags_given


def _together(name: str, before: Any, flags_given: Any) -> Any:
    if name == "resources":
        return {**(before or {}), **flags_given}
    if name == "env":
        return {**(before or {}), **_variables(flags_given)}
    if name == "ports":
        return _ports(before or [], flags_given)
    return flags_given


def _variables(flags_given: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in flags_given:  # the last of a name wins, as on any command line
        try:
            found |= read_env([item])
        except ValueError as error:
            raise WrongFlag(
                [Problem(str(error), "--env", hint="for example `-e NAME=value`", code="invalid-env")]
            ) from None
    return found


def _ports(before: list[dict[str, Any]], flags_given: list[str]) -> list[Any]:
    """Merge ports: one mapping per container port, and no local port twice."""
    from chalicelib.domain.specs.mounts import PortMapping

    try:
        resources = [PortMapping.model_validate(text).model_dump() for text in flags_given]
    except ValidationError as error:
        found = problems_of(error, model=PortMapping)
        raise WrongFlag([Problem(p.message, "--port", hint=p.hint, code=p.code) for p in found]) from None
    ports = {port["container_port"]: port for port in [*before, *resources]}
    local = [port["local_port"] for port in ports.values() if port["local_port"] is not None]
    if twice := sorted({number for number in local if local.count(number) > 1}):
        message = f"the local port {twice[0]} is used for two ports"
        raise WrongFlag([Problem(message, "--port", hint=f'let one be any: `-p "*:{twice[0]}"`', code="duplicate")])
    return list(ports.values())


def _flag(path: str) -> str:
    first, *below = path.split(".")
    if first == "resources" and below:
        first, *below = below
    if first == "retry" and below:
        return "--retry-duration"
    return _FLAGS.get(first, "--" + first.replace("_", "-"))
