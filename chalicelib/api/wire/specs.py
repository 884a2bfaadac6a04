"""Stored specs as clients see them: spliced in as text, without their secrets.

The values of environment variables are often secrets, even if they aren't marked as such. A run or a fleet that is
requested by name has them, because clients compare it with their file; a list has only those of the caller's own runs.
"""

from __future__ import annotations

import orjson
from pydantic import BaseModel

from chalicelib.domain.specs.env import without_values
from chalicelib.store.sealed_specs import shown


def spec_json(model: type[BaseModel], stored: str, *, env: bool = True) -> orjson.Fragment:
    """The spec of a run or a fleet. Without `env` the environment variables have no values."""
    text = shown(model, stored)
    if env or '"env"' not in text:
        return orjson.Fragment(text)
    spec = orjson.loads(text)
    configuration = {**spec["configuration"]}
    if "env" in configuration:
        configuration["env"] = without_values(configuration["env"])
    return orjson.Fragment(orjson.dumps({**spec, "configuration": configuration}))


def job_spec_json(model: type[BaseModel], stored: str, *, env: bool = True) -> orjson.Fragment:
    text = shown(model, stored)
    if env:
        return orjson.Fragment(text)
    spec = orjson.loads(text)
    return orjson.Fragment(orjson.dumps({**spec, "env": without_values(spec["env"])}))
