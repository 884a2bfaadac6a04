"""Metrics over HTTP: those of one job, which is the only call with query parameters, and all, for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from chalicelib.api.requests import At, Id, Num, RequestBody
from chalicelib.api.route import Answer, Call, asks
from chalicelib.api.wire.metrics import job_metrics_json
from chalicelib.usecases.runs import metrics

if TYPE_CHECKING:
    from chalicelib import contract


class JobQuery(RequestBody):
    run_id: Id | None = None
    replica_num: Num = 0
    job_num: Num = 0
    limit: Annotated[int, Field(ge=1, le=100_000)] = 1
    after: At | None = None
    before: At | None = None


@asks(JobQuery)
def job(call: Call, query: JobQuery) -> contract.JobMetrics:
    """What a job of the run used of its machine: a series for each name, newest first."""
    wanted = metrics.WantedPoints(
        run_name=call.params["run_name"],
        run_id=query.run_id,
        replica_num=query.replica_num,
        job_num=query.job_num,
        limit=query.limit,
        after=query.after,
        before=query.before,
    )
    return job_metrics_json(metrics.job_usage(call.plane, call.tenant, wanted))


def prometheus(call: Call) -> Annotated[Answer, "text/plain; version=0.0.4"]:
    """The numbers that the caller may see, for Prometheus."""
    from chalicelib.api.wire.prometheus import CONTENT_TYPE, text_of
    from chalicelib.usecases.operator.exposition import expose

    return Answer(text_of(expose(call.plane, call.actor)), content_type=CONTENT_TYPE)
