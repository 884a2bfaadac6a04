"""Specs at rest, with their secrets sealed. Planning, lists, plans and events only ever see the sealed text.

A seal is bound to the owner of the spec, so a sealed secret that is copied into another spec doesn't open there. The
control plane opens specs to compare them with new ones, to send a job to its agent, and to log in to hosts. Opened
specs are never stored, shown or logged.

A client gets a plan and sends it back to apply it. The plan's secrets are sealed for that client alone: so a plan shows
no key, and applying it doesn't require sending the key again. A reference (`${{ secrets.NAME }}`) isn't a secret.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel

from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.specs.secrecy import HIDDEN, Leaf, names_of, replaced, secrets_of
from chalicelib.errors import Refused
from chalicelib.store.seal import Sealer

S = TypeVar("S", FleetSpec, RunSpec)
Raw = dict[str, Any]
Kind = type[BaseModel]

_FORM = "sealed."
_SEALED = re.compile(r"sealed\.(v1\.[A-Za-z0-9_=-]+)")
_REFERENCE = re.compile(r"\s*\$\{\{\s*[a-z]+\.[\w.-]+\s*\}\}\s*")


# --- in the store ---------------------------------------------------------------------------------------------------


def of_fleet(fleet_id: str) -> str:
    """The context of the secrets in a fleet's spec."""
    return f"spec/fleet/{fleet_id}"


def of_run(run_id: str) -> str:
    return f"spec/run/{run_id}"


def of_gateway(gateway_id: str) -> str:
    return f"spec/gateway/{gateway_id}"


def of_backend(project_id: str, type: str) -> str:
    return f"backend/{project_id}/{type}"


def sealed(seal: Sealer, model: Kind, raw: Raw, context: str) -> Raw:
    """The spec with its secrets sealed."""

    def change(text: str, _: Leaf) -> str:
        return text if _REFERENCE.fullmatch(text) else _FORM + seal.seal(text, context=context)

    found: Raw = replaced(secrets_of(model), raw, change)
    return found


def sealed_text(seal: Sealer, model: Kind, text: str, context: str) -> str:
    """The same for a spec that is JSON text."""
    return orjson.dumps(sealed(seal, model, orjson.loads(text), context)).decode() if _may_hold(model, text) else text


def resealed(seal: Sealer, model: Kind, text: str, context: str) -> str:
    """A stored spec, with secrets sealed that an older version left in clear; the same text if there are none."""
    if not _may_hold(model, text):
        return text

    def change(found: str, _: Leaf) -> str:
        known = _REFERENCE.fullmatch(found) or _SEALED.fullmatch(found)
        return found if known else _FORM + seal.seal(found, context=context)

    raw = orjson.loads(text)
    after = replaced(secrets_of(model), raw, change)
    return text if after == raw else orjson.dumps(after).decode()


def opened(seal: Sealer, model: Kind, raw: Raw, context: str) -> Raw:
    """The inverse of `sealed`. Secrets that an older version stored in clear stay as they are."""

    def change(text: str, _: Leaf) -> str:
        match = _SEALED.fullmatch(text)
        return text if match is None else seal.open(match[1], context=context)

    found: Raw = replaced(secrets_of(model), raw, change)
    return found


def fleet_spec(seal: Sealer, fleet_id: str, stored: str) -> FleetSpec:
    """A fleet's spec with its keys in clear, to log in to its hosts or to compare it with another."""
    return _opened(seal, FleetSpec, stored, of_fleet(fleet_id))


def run_spec(seal: Sealer, run_id: str, stored: str) -> RunSpec:
    return _opened(seal, RunSpec, stored, of_run(run_id))


def _opened(seal: Sealer, model: type[S], text: str, context: str) -> S:
    if not _may_hold(model, text):
        return model.model_validate_json(text)
    return model.model_validate(opened(seal, model, orjson.loads(text), context))


# --- for display ----------------------------------------------------------------------------------------------------


def shown(model: Kind, text: str, *, each: bool = False) -> str:
    """A spec as it may be shown to anybody: its secrets are hidden, sealed or not. `each`: with a mark for each that is
    there, also where it could be left out."""
    if not _may_hold(model, text):
        return text

    def change(found: str, leaf: Leaf) -> str | None:
        return found if _REFERENCE.fullmatch(found) else HIDDEN if each else leaf.shown

    return orjson.dumps(replaced(secrets_of(model), orjson.loads(text), change)).decode()


def marked(model: Kind, text: str) -> str:
    """The same with a mark for each secret that is there, also where it could be left out: so that the spec can be sent
    back, and clients that need all of a secret's parts can read it."""
    return orjson.dumps(replaced(secrets_of(model), orjson.loads(text), lambda *_: HIDDEN)).decode()


def _may_hold(model: Kind, text: str) -> bool:
    """Whether the text has to be parsed: hardly any spec has a secret, and lists show thousands."""
    return any(name in text for name in _names(model))


@cache
def _names(model: Kind) -> tuple[str, ...]:
    return tuple(f'"{name}"' for name in sorted(names_of(secrets_of(model))))


# --- in plans -------------------------------------------------------------------------------------------------------


def to_client(seal: Sealer, model: Kind, raw: Raw, project_id: str, user_id: str) -> Raw:
    """A spec as its plan returns it."""
    return sealed(seal, model, raw, _of_plan(project_id, user_id))


def from_client(seal: Sealer, model: Kind, raw: Raw, project_id: str, user_id: str) -> Raw:
    """A spec from the client, with the secrets opened that an earlier plan sealed."""

    def change(text: str, _: Leaf) -> str:
        if text == HIDDEN:
            raise Refused(f"The specification holds {HIDDEN} in place of a secret.", hint="Apply the file it is from.")
        match = _SEALED.fullmatch(text)
        if match is None:
            return text
        try:
            return seal.open(match[1], context=_of_plan(project_id, user_id))
        except Refused:
            what = "A key or password in this specification was sealed for another user's plan, or with other keys."
            raise Refused(what, hint="Plan it again.") from None

    found: Raw = replaced(secrets_of(model), raw, change)
    return found


def _of_plan(project_id: str, user_id: str) -> str:
    return f"plan/{project_id}/{user_id}"
