"""The calls of a gateway's control program, with the credential of its machine's agent (`agent/gateway/plane.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

from pydantic import BaseModel, Field

from chalicelib.api.auth import bearer
from chalicelib.api.route import Answer, Call
from chalicelib.domain.instants import Micros
from chalicelib.domain.latencies import CELLS
from chalicelib.domain.services import Answers, Bucket, Durations, Traffic
from chalicelib.usecases.agents import gateway_sync
from chalicelib.usecases.agents.gateway_sync import GatewayCaller, GatewayStreamOrder, Seat
from chalicelib.usecases.services.service_tokens import LONGEST

if TYPE_CHECKING:
    from chalicelib.contract.agent_gateway import NewConfiguration, RightsAnswer, SameConfiguration

_NOTHING = Answer(b"", status=204)
_Id = Annotated[str, Field(min_length=1, max_length=64)]
_Count = Annotated[int, Field(ge=0, le=2**31)]
_At = Annotated[Micros, Field(ge=0, le=2**53)]


class _BucketBody(BaseModel):
    at: _At
    requests: _Count
    busy: Annotated[float, Field(ge=0, le=2**31, allow_inf_nan=False)]


_Histogram = Annotated[tuple[_Count, ...], Field(max_length=CELLS)]


class _AnswersBody(BaseModel):
    at: _At
    first_byte: _Histogram
    whole: _Histogram


class _DurationsBody(BaseModel):
    histogram: _Histogram = ()
    seconds: Annotated[float, Field(ge=0, le=2**53, allow_inf_nan=False)] = 0.0

    def durations(self) -> Durations:
        return Durations(histogram=self.histogram, seconds=self.seconds)


class _Report(BaseModel):
    run_id: _Id
    at: _At
    quiet: bool
    held: _Count
    buckets: Annotated[tuple[_BucketBody, ...], Field(max_length=64)]
    answers: Annotated[tuple[_AnswersBody, ...], Field(max_length=64)] = ()  # none from gateways of earlier releases
    first_byte: _DurationsBody = _DurationsBody()
    whole: _DurationsBody = _DurationsBody()
    let_go: Annotated[tuple[_Id, ...], Field(max_length=1000)]


class _Reports(BaseModel):
    reports: Annotated[tuple[_Report, ...], Field(max_length=10_000)]


class _Caller(BaseModel):
    token_hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    claims: Annotated[str, Field(max_length=LONGEST)] = ""
    project: _Id
    run: Annotated[str, Field(max_length=64)] = ""


class _Stream(BaseModel):
    id: Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]{1,64}$")]
    ticket: Annotated[str, Field(min_length=1, max_length=128)]
    instance: _Id
    task: _Id
    target: _Id
    lazily: bool = True


class _Streams(BaseModel):
    streams: Annotated[tuple[_Stream, ...], Field(max_length=10_000)]
    pin: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""  # empty: the gateway has no https


def configuration(call: Call) -> NewConfiguration | SameConfiguration:
    return gateway_sync.gateway_configuration(call.plane, _seat(call), call.query.get("since", ""))


def traffic(call: Call) -> Answer:
    seat = _seat(call)
    gateway_sync.report(call.plane, seat, [_traffic(seat, each) for each in call.parse(_Reports).reports])
    return _NOTHING


def rights(call: Call) -> RightsAnswer:
    seat, body = _seat(call), call.parse(_Caller)
    caller = GatewayCaller(body.token_hash, body.claims)
    verdict = gateway_sync.judge(call.plane, seat, caller, body.project, body.run)
    return cast("RightsAnswer", verdict.model_dump(exclude_none=True))


def streams(call: Call) -> Answer:
    seat = _seat(call)
    body = call.parse(_Streams)
    orders = [GatewayStreamOrder(**each.model_dump()) for each in body.streams]
    gateway_sync.pass_on(call.plane, seat, orders, body.pin)
    return _NOTHING


def _seat(call: Call) -> Seat:
    return gateway_sync.seat_of(call.plane, bearer(call.headers))


def _traffic(seat: Seat, report: _Report) -> Traffic:
    return Traffic(
        run_id=report.run_id,
        door=seat.door,
        at=report.at,
        quiet=report.quiet,
        held=report.held,
        buckets=tuple(Bucket(at=each.at, requests=each.requests, busy=each.busy) for each in report.buckets),
        answers=tuple(Answers(at=each.at, first_byte=each.first_byte, whole=each.whole) for each in report.answers),
        first_byte=report.first_byte.durations(),
        whole=report.whole.durations(),
        let_go=report.let_go,
    )
