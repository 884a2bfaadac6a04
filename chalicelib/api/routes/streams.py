"""Streams over HTTP. The result is for the server, which makes the caller's connection one end of the stream:
the caller gets status 101, or an error."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from chalicelib.api.auth import bearer
from chalicelib.api.requests import DATE, Num, RequestBody
from chalicelib.api.route import Call, asks
from chalicelib.domain.bounds import Instant
from chalicelib.domain.instants import from_iso
from chalicelib.domain.tenants import hash_token
from chalicelib.usecases.runs import streams

if TYPE_CHECKING:
    from chalicelib import contract


def _digits(value: Any) -> Any:
    if not re.fullmatch("[0-9]{1,5}", str(value)):
        raise ValueError("should be a number from 0, in five digits at most")
    return value


def _since(value: Any) -> Any:
    if not value:
        return None
    try:
        return max(0, from_iso(value))  # there is no older log
    except (ValueError, OverflowError):
        form = "2026-11-21T05:11:20+00:00; a plus in an address is written %2B"
        raise ValueError(f"should be an ISO date with a zone, for example {form}") from None


_Place = Annotated[Num, BeforeValidator(_digits)]


class StreamQuery(RequestBody):
    target: str = "ssh"
    replica: _Place = 0
    job: _Place = 0
    start_time: Annotated[Instant | None, BeforeValidator(_since), WithJsonSchema(DATE)] = None


@asks(StreamQuery)
def open_stream(call: Call, query: StreamQuery) -> contract.OpenedStream:
    """Opens a stream to a job: its SSH server, a port, or its log. A WebSocket."""
    target = streams.StreamTarget(
        run_name=call.params["run_name"],
        name=query.target,
        replica_num=query.replica,
        job_num=query.job,
        since=query.start_time,
    )
    used = hash_token(bearer(call.headers))
    return {"stream": streams.open_stream(call.plane, call.actor, call.tenant, call.role, target, used)}


def dial(call: Call) -> contract.OpenedStream:
    streams.claim(call.plane, call.params["stream_id"], bearer(call.headers))
    return {"stream": call.params["stream_id"]}
