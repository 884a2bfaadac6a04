"""The last step before a configuration is sent: filling in the values that only the client knows.

Variables without a value take it from the environment; `${{ run.args }}` in commands becomes the arguments after `--`;
`${{ env.NAME }}` in registry credentials and probes becomes the variable's value. Secrets are left to the server. Pure:
environment and arguments are inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from chalicelib.configuration.interpolation import fill, joined_arguments
from chalicelib.configuration.references import ARGUMENTS, MAX_PROBLEMS, Allowed, wrong
from chalicelib.domain.specs.env import EnvSentinel, plain, unresolved
from chalicelib.domain.specs.reading import Spec
from chalicelib.errors import Invalid, Problem

C = TypeVar("C", bound=Spec)

_DEFERRED = ("secrets", "groups")  # filled in by the server, or refused


def resolved(configuration: C, *, environment: Mapping[str, str], arguments: Sequence[str] = ()) -> C:
    """The configuration with these values filled in. Raises Invalid with every unset variable and unknown reference."""
    problems: list[Problem] = []
    changes: dict[str, Any] = {}
    env = _env(getattr(configuration, "env", {}), environment, problems)
    if hasattr(configuration, "env"):
        changes["env"] = env
    fill_commands = _filler({"run": {"args": joined_arguments(arguments)}}, (ARGUMENTS,), problems)
    fill_env = _filler({"env": env}, (Allowed("env", tuple(getattr(configuration, "env", ()))),), problems)
    if commands := getattr(configuration, "commands", ()):
        changes["commands"] = fill_commands("commands", commands)
    if groups := getattr(configuration, "groups", None):
        changes["groups"] = tuple(
            group.with_(commands=fill_commands(f"groups.{place}.commands", group.commands))
            for place, group in enumerate(groups)
        )
    if auth := getattr(configuration, "registry_auth", None):
        (username,) = fill_env("registry_auth.username", (auth.username,))
        (password,) = fill_env("registry_auth.password", (auth.password,))
        changes["registry_auth"] = auth.with_(username=username, password=password)
    if probes := getattr(configuration, "probes", None):
        changes["probes"] = tuple(_probe(f"probes.{place}", probe, fill_env) for place, probe in enumerate(probes))
    if problems:
        raise Invalid(problems)
    return configuration.with_(**changes) if changes else configuration


Fill = Callable[[str, tuple[str, ...]], tuple[str, ...]]


def _filler(values: Mapping[str, Mapping[str, str]], takes: Sequence[Allowed], problems: list[Problem]) -> Fill:
    """A function that fills in texts. Escapes stay: the server fills in the rest, and removes them when a job
    starts."""

    def fill_all(path: str, texts: tuple[str, ...]) -> tuple[str, ...]:
        done = []
        for place, text in enumerate(texts):
            where = f"{path}.{place}" if len(texts) > 1 or path.endswith("commands") else path
            problems.extend(islice(wrong(text, where, takes, deferred=_DEFERRED), MAX_PROBLEMS))
            done.append(fill(text, values, unescape=False))
        return tuple(done)

    return fill_all


def _env(
    env: Mapping[str, str | EnvSentinel], environment: Mapping[str, str], problems: list[Problem]
) -> dict[str, str]:
    found = {
        name: value if isinstance(value, str) else environment.get(value.key, value) for name, value in env.items()
    }
    problems += unresolved(found, "env")
    return plain(found)


def _probe(path: str, probe: Any, fill_env: Fill) -> Any:
    changes: dict[str, Any] = {}
    for field in ("url", "body"):
        if (text := getattr(probe, field)) is not None:
            (changes[field],) = fill_env(f"{path}.{field}", (text,))
    headers = []
    for place, header in enumerate(probe.headers):
        (value,) = fill_env(f"{path}.headers.{place}.value", (header.value,))
        headers.append(header.with_(value=value))
    return probe.with_(**changes, headers=tuple(headers))
