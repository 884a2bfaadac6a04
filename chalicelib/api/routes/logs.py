"""Logs over HTTP: pages, each with the token of the next; no token at the end."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from chalicelib.api.requests import At, Id, Name, Request
from chalicelib.api.table import Access, Call, Route
from chalicelib.api.wire.logs import log_page_json
from chalicelib.usecases import logs


class Poll(Request):
    run_name: Name
    job_submission_id: Id
    start_time: At | None = None
    end_time: At | None = None
    descending: bool = False
    next_token: Annotated[str, Field(max_length=200)] | None = None
    limit: Annotated[int, Field(ge=0, le=1000)] = 100
    diagnose: bool = False


def poll(call: Call) -> Any:
    asked = call.parse(Poll)
    wanted = logs.Wanted(
        job_id=asked.job_submission_id,
        start=asked.start_time,
        end=asked.end_time,
        descending=asked.descending,
        token=asked.next_token,
        limit=asked.limit,
    )
    if asked.diagnose:
        return log_page_json(logs.story(call.plane, call.tenant, asked.run_name, wanted), None)
    return log_page_json(*logs.read_log(call.plane, call.tenant, asked.run_name, wanted))


ROUTES: tuple[Route, ...] = (Route("POST", "/api/project/{project_name}/logs/poll", Access.member, poll),)
