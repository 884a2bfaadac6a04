"""Streams over HTTP. The result is for the server, which makes the caller's connection one end of the stream:
the caller gets status 101, or an error."""

from __future__ import annotations

from typing import Any

from chalicelib.api.auth import bearer
from chalicelib.api.route import Call
from chalicelib.domain.instants import Micros, from_iso
from chalicelib.domain.tenants import hash_token
from chalicelib.errors import Invalid
from chalicelib.usecases.runs import streams


def open_stream(call: Call) -> Any:
    target = streams.StreamTarget(
        run_name=call.params["run_name"],
        name=call.query.get("target", "ssh"),
        replica_num=_number(call, "replica"),
        job_num=_number(call, "job"),
        since=_since(call),
    )
    used = hash_token(bearer(call.headers))
    return {"stream": streams.open_stream(call.plane, call.actor, call.tenant, call.role, target, used)}


def dial(call: Call) -> Any:
    streams.claim(call.plane, call.params["stream_id"], bearer(call.headers))
    return {"stream": call.params["stream_id"]}


def _number(call: Call, name: str) -> int:
    text = call.query.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise Invalid(f"`{name}` should be a number from 0, not {text[:40]!r}.")
    return int(text)


def _since(call: Call) -> Micros | None:
    text = call.query.get("start_time")
    if not text:
        return None
    try:
        return from_iso(text)
    except (ValueError, OverflowError):
        hint = "It looks like 2026-11-21T05:11:20+00:00; a plus in an address is written %2B."
        raise Invalid(f"`start_time` should be an ISO date with a zone, not {text[:40]!r}.", hint=hint) from None
