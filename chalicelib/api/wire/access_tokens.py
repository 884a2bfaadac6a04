"""Access tokens on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from chalicelib.domain.access_tokens import AccessToken
from chalicelib.domain.instants import iso

if TYPE_CHECKING:
    from chalicelib import contract


def access_token_json(entry: AccessToken, spent: Mapping[str, float] = MappingProxyType({})) -> contract.AccessToken:
    """`spent`: dollars today, by the id of the limit."""
    return {
        "id": entry.id,
        "name": entry.name,
        "created_at": iso(entry.created_at),
        "expires_at": iso(entry.expires_at),
        "verbs": [verb.value for verb in entry.verbs],
        "projects": [project.name for project in entry.projects],
        "dollars_a_day": None if entry.limit is None else entry.limit.dollars,
        "spent_today": None if entry.limit is None else round(spent.get(entry.limit.id, 0.0), 4),
    }
