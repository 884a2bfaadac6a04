"""Logs over HTTP: pages, each with the token of the next; no token at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from chalicelib.api.requests import At, Id, Name, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.api.wire.logs import log_page_json
from chalicelib.domain import pages
from chalicelib.store.logs import LogQuery
from chalicelib.usecases.runs import logs

if TYPE_CHECKING:
    from chalicelib import contract


class PollBody(RequestBody):
    run_name: Name
    job_submission_id: Id
    start_time: At | None = None
    end_time: At | None = None
    descending: bool = False
    next_token: Annotated[str, Field(max_length=200)] | None = None
    limit: Annotated[int, Field(ge=0, le=pages.RECORDS)] = 100
    diagnose: bool = False


@takes(PollBody)
def poll(call: Call, body: PollBody) -> contract.LogPage:
    """A page of what a job wrote, oldest first, or newest first with `descending`. With `diagnose` it is what the
    control plane knows of the job instead."""
    span = {name: at for name, at in (("start", body.start_time), ("end", body.end_time)) if at is not None}
    query = LogQuery(**span, token=body.next_token, limit=max(1, body.limit), descending=body.descending)
    of = (call.plane, call.tenant, body.run_name, body.job_submission_id, query)
    if body.diagnose:
        records, following = logs.story(*of), None
    else:
        page = logs.read_log(*of)
        records, following = page.records, page.next_token
    return log_page_json(records, following) if body.limit else log_page_json((), None)
