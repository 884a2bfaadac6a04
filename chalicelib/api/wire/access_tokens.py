"""Access tokens on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.domain.access_tokens import AccessToken
from chalicelib.domain.instants import iso

if TYPE_CHECKING:
    from chalicelib import contract


def access_token_json(entry: AccessToken) -> contract.AccessToken:
    return {
        "id": entry.id,
        "name": entry.name,
        "created_at": iso(entry.created_at),
        "expires_at": iso(entry.expires_at),
        "verbs": [verb.value for verb in entry.verbs],
        "projects": [project.name for project in entry.projects],
    }
