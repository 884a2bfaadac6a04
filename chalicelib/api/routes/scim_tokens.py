"""Tokens with which a company's directory calls SCIM. The text of one is in the answer that creates it, and nowhere
else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.api.requests import Name, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.domain.directory import DirectoryToken
from chalicelib.domain.instants import iso
from chalicelib.usecases.people import directory_tokens

if TYPE_CHECKING:
    from chalicelib import contract


class ScimTokenBody(RequestBody):
    name: Name


@takes(ScimTokenBody)
def create(call: Call, body: ScimTokenBody) -> contract.CreatedScimToken:
    """Creates a token that is good for `/scim` alone, and lasts until it is revoked."""
    entry, text = directory_tokens.create(call.plane, call.actor, body.name)
    return {**_json(entry), "token": text}


def list_tokens(call: Call) -> list[contract.ScimToken]:
    """All of them, newest first."""
    return [_json(entry) for entry in directory_tokens.list_tokens(call.plane)]


@takes(ScimTokenBody)
def revoke(call: Call, body: ScimTokenBody) -> None:
    """Ends a token at once. What a directory did with it stays."""
    directory_tokens.revoke(call.plane, call.actor, body.name)


def _json(entry: DirectoryToken) -> contract.ScimToken:
    return {
        "id": entry.id,
        "name": entry.name,
        "created_at": iso(entry.created_at),
        "created_by": entry.created_by,
    }
