"""Configurations as users wrote them, of stored specs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from pydantic import BaseModel

from chalicelib.domain.specs.env import without_values
from chalicelib.store.sealed_specs import shown

if TYPE_CHECKING:
    from chalicelib import contract


def configuration_of(model: type[BaseModel], stored: str, *, env: bool) -> contract.Configuration:
    """What the user wrote, with marks in place of secrets, so that it can be sent back. Without `env` the environment
    variables have no values."""
    written: contract.Configuration = orjson.loads(shown(model, stored, each=True))["configuration"]
    if not env and "env" in written:
        written = {**written, "env": without_values(written["env"])}
    return written
