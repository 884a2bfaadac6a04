"""The caller's own public keys over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from chalicelib.api.requests import Id, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.api.wire.users import public_key_json
from chalicelib.usecases.people import public_keys

if TYPE_CHECKING:
    from chalicelib import contract


class AddPublicKeyBody(RequestBody):
    key: Annotated[str, Field(max_length=20_000)]
    name: Annotated[str, Field(max_length=1_000)] | None = None


class DeletePublicKeysBody(RequestBody):
    ids: list[Id] = Field(max_length=100)


def list_keys(call: Call) -> list[contract.PublicKey]:
    return [public_key_json(key) for key in public_keys.list_keys(call.plane, call.actor)]


@takes(AddPublicKeyBody)
def add(call: Call, body: AddPublicKeyBody) -> contract.PublicKey:
    """Adds a public key, which lets its owner in to the jobs that they may attach to."""
    return public_key_json(public_keys.add_key(call.plane, call.actor, body.key, body.name))


@takes(DeletePublicKeysBody)
def delete(call: Call, body: DeletePublicKeysBody) -> None:
    public_keys.delete_keys(call.plane, call.actor, body.ids)
