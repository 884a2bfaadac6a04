"""Stored specs as clients see them: spliced in as text, without their secrets.

The values of environment variables are often secrets, even if they aren't marked as such. A run or a fleet that is
requested by name has them, because clients compare it with their file; a list has only those of the caller's own runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from pydantic import BaseModel

from chalicelib.api.wire.spliced import spliced
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.specs.env import without_values
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.store.sealed_specs import shown

if TYPE_CHECKING:
    from chalicelib import contract


def run_spec_json(stored: str, *, env: bool = True) -> contract.RunSpec:
    """The spec of a run. Without `env` the environment variables have no values."""
    spec: contract.RunSpec = spliced(_shown(RunSpec, stored, env=env))
    return spec


def fleet_spec_json(stored: str, *, env: bool = True) -> contract.FleetSpec:
    """The spec of a fleet, likewise."""
    spec: contract.FleetSpec = spliced(_shown(FleetSpec, stored, env=env))
    return spec


def job_spec_json(stored: str, *, env: bool = True) -> contract.JobSpec:
    """The spec of a job, likewise."""
    text: str | bytes = shown(JobSpec, stored)
    if not env:
        plain = orjson.loads(text)
        text = orjson.dumps({**plain, "env": without_values(plain["env"])})
    spec: contract.JobSpec = spliced(text)
    return spec


def _shown(model: type[BaseModel], stored: str, *, env: bool) -> str | bytes:
    text = shown(model, stored)
    if env or '"env"' not in text:
        return text
    spec = orjson.loads(text)
    configuration = {**spec["configuration"]}
    if "env" in configuration:
        configuration["env"] = without_values(configuration["env"])
    return orjson.dumps({**spec, "configuration": configuration})
