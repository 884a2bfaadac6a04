"""Writes under `/api/v1`: once for each `Idempotency-Key`."""

from __future__ import annotations

from urllib.parse import urlencode

from pydantic import ConfigDict, RootModel

from chalicelib.api.requests import Object, RequestBody
from chalicelib.api.route import Call
from chalicelib.domain.keyed_requests import SentKey, sent_key
from chalicelib.usecases.keyed_requests import Act, Acted, once

KEY, REPEATED = "idempotency-key", "Idempotency-Replayed"


class Nothing(RequestBody):
    """An empty body."""

    model_config = ConfigDict(extra="forbid")


class Written(RootModel[Object]):
    """What a user writes into a `*.dstack.yml`, as JSON."""


class WriteQuery(RequestBody):
    """How to write."""

    model_config = ConfigDict(extra="forbid")

    dry_run: bool = False


def act_once(call: Call, method: str, path: str, act: Act) -> Acted:
    """`path`: the request's own."""
    return once(call.plane, call.actor, _sent(call, method, path), act)


def _sent(call: Call, method: str, path: str) -> SentKey | None:
    key = call.headers.get(KEY)
    if key is None:
        return None
    return sent_key(key, method, f"{path}?{urlencode(sorted(call.query.items()))}", call.body)


def headers_of(acted: Acted) -> dict[str, str]:
    return {REPEATED: "true"} if acted.repeated else {}
