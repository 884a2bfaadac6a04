"""Reads any value as a model, or reports all of its problems.

The code that makes messages is imported only for an invalid value: most are valid, and a cold start should be quick.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from chalicelib.configuration.providers import FROM_CLIENT
from chalicelib.errors import Invalid

M = TypeVar("M", bound=BaseModel)


def read(model: type[M], raw: Any, prefix: str = "") -> M:
    """`raw` as `model`. Raises Invalid with every problem; the path of each begins with `prefix`."""
    try:
        return model.model_validate(raw, context=FROM_CLIENT)
    except ValidationError as error:
        from chalicelib.configuration.problems import problems_of

        found = problems_of(error, model=model)
    raise Invalid([replace(p, path=".".join(part for part in (prefix, p.path) if part)) for p in found])
