"""The message of an agent, validated as strictly as its reports on tasks (`domain.reports`)."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from chalicelib.agent.kernel.limits import (
    GPUS_MOST,
    MESSAGE_BYTES,
    METRICS_MOST,
    RECORDS_MOST,
    TAKEN_BACK_MOST,
    TASKS_MOST,
    TROUBLE_TEXT,
    TROUBLES_MOST,
)
from chalicelib.domain.bounds import Amount, Instant, Percent
from chalicelib.domain.instances import HostFacts, HostGpu
from chalicelib.domain.instants import Micros
from chalicelib.domain.reports import AgentInput, GatewayReport, PrintableText, ShortText, TaskReport
from chalicelib.errors import Invalid, Problem
from chalicelib.printable import printable

PROTOCOL = 1
LONGEST_BYTE = 13  # bytes of a chunk per byte of output: the byte itself, and at most a time and a length of its own
MAX_CHUNK = 16 * 1024 * 1024  # bytes of one object: a megabyte of output with the times of its lines


class Unacceptable(Invalid):
    """A message that will never be accepted. The status tells the agent not to send it again."""

    status = 422


class LogBytes(AgentInput):
    task: ShortText
    offset: Amount
    records: list[tuple[Instant, str]] = Field(max_length=RECORDS_MOST)

    def decoded(self) -> list[tuple[Micros, bytes]]:
        try:
            return [(at, b64decode(text, validate=True)) for at, text in self.records]
        except (binascii.Error, ValueError):
            raise Unacceptable([Problem("a record is not base64", path="logs.records")]) from None


class ChunkReport(AgentInput):
    """A part of a log that the agent is about to upload, or has uploaded."""

    task: ShortText
    offset: Amount
    end: Amount
    low: Instant
    high: Instant
    size: Annotated[int, Field(ge=1, le=MAX_CHUNK)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    stored: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> ChunkReport:
        written = self.end - self.offset
        if not 0 < written <= self.size <= written * LONGEST_BYTE or self.low > self.high:
            raise ValueError("a chunk has as many bytes as it says, in order")
        return self


class GpuLoad(AgentInput):
    memory_usage_bytes: Amount | None = None  # None: the GPU doesn't report it
    util_percent: Percent | None = None


class MetricPoint(AgentInput):
    task: ShortText
    at: Instant
    cpu_usage_micro: Amount = 0
    memory_usage_bytes: Amount = 0
    memory_working_set_bytes: Amount = 0
    gpus: list[GpuLoad] = Field(default=[], max_length=GPUS_MOST)


class TroubleReport(AgentInput):
    status: Literal["warning", "failure"]
    message: Annotated[str, Field(min_length=1, max_length=TROUBLE_TEXT), AfterValidator(printable)]
    age: Amount = 0  # seconds


class AgentMessage(AgentInput):
    v: Amount = PROTOCOL
    instance: ShortText
    boot: Annotated[str, Field(min_length=1, max_length=100)]
    seq: Amount
    at: Instant = 0  # when it was sent, by the clock of the agent's machine; 0: an older agent
    agent: PrintableText = ""
    facts: HostFacts | None = None
    health: list[TroubleReport] | None = Field(default=None, max_length=TROUBLES_MOST)
    tasks: list[TaskReport] = Field(default=[], max_length=TASKS_MOST)
    logs: list[LogBytes] = Field(default=[], max_length=TASKS_MOST)
    chunks: list[ChunkReport] = Field(default=[], max_length=1)
    metrics: list[MetricPoint] = Field(default=[], max_length=METRICS_MOST)
    gateway: GatewayReport | None = None
    taken_back_in: Annotated[float, Field(ge=0, le=TAKEN_BACK_MOST, allow_inf_nan=False)] | None = None  # seconds
    wait: Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)] = 0

    @field_validator("facts", mode="before")
    @classmethod
    def _known_facts(cls, facts: Any) -> Any:
        """The agent's facts, without those of newer agents, which this version doesn't know."""
        if not isinstance(facts, dict):
            return facts
        known = {name: value for name, value in facts.items() if name in HostFacts.model_fields}
        if isinstance(known.get("gpus"), list):
            known["gpus"] = [_known_gpu(gpu) for gpu in known["gpus"]]
        return known


def _known_gpu(gpu: Any) -> Any:
    return (
        {name: value for name, value in gpu.items() if name in HostGpu.model_fields} if isinstance(gpu, dict) else gpu
    )


def read_message(body: bytes | dict[str, Any]) -> AgentMessage:
    """The message. Raises Unacceptable with everything that is wrong with it."""
    if isinstance(body, bytes) and len(body) > MESSAGE_BYTES:
        raise Unacceptable(
            f"The message has {len(body)} bytes; the limit is {MESSAGE_BYTES}.", hint="Send less log at a time."
        )
    try:
        message = (
            AgentMessage.model_validate_json(body) if isinstance(body, bytes) else AgentMessage.model_validate(body)
        )
    except ValidationError as error:
        found = [Problem(e["msg"], path=".".join(map(str, e["loc"]))) for e in error.errors()]
        raise Unacceptable(found) from None
    if message.v != PROTOCOL:
        raise Invalid(
            f"The agent speaks protocol {message.v}, this control plane {PROTOCOL}.", hint="Replace the agent."
        )
    return message
