"""Logs over HTTP: pages, each with the token of the next; no token at the end."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from chalicelib.api.requests import At, Id, Name, RequestBody
from chalicelib.api.route import Call
from chalicelib.api.wire.logs import log_page_json
from chalicelib.store.logs import LogAsk
from chalicelib.usecases.runs import logs


class PollBody(RequestBody):
    run_name: Name
    job_submission_id: Id
    start_time: At | None = None
    end_time: At | None = None
    descending: bool = False
    next_token: Annotated[str, Field(max_length=200)] | None = None
    limit: Annotated[int, Field(ge=0, le=1000)] = 100
    diagnose: bool = False


def poll(call: Call) -> Any:
    asked = call.parse(PollBody)
    span = {name: at for name, at in (("start", asked.start_time), ("end", asked.end_time)) if at is not None}
    ask = LogAsk(**span, token=asked.next_token, limit=max(1, asked.limit), descending=asked.descending)
    of = (call.plane, call.tenant, asked.run_name, asked.job_submission_id, ask)
    page = (logs.story(*of), None) if asked.diagnose else logs.read_log(*of)
    return log_page_json(*page) if asked.limit else log_page_json((), None)
