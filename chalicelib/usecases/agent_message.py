"""What an agent says, read strictly: an agent runs beside other people's programs, so nothing of it is believed unread.

Unknown fields are ignored, so that a newer agent can talk to an older control plane.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from chalicelib.domain.instances import GpuSeen, HostFacts
from chalicelib.domain.instants import Micros
from chalicelib.domain.jobs import PullProgress
from chalicelib.domain.reasons import JobReason
from chalicelib.errors import Invalid, Problem

PROTOCOL = 1
MAX_MESSAGE = 2 * 1024 * 1024  # bytes of JSON; a full load of log, metrics and task states is a quarter of it
MAX_TASKS = 300

TaskState = Literal["preparing", "pulling", "running", "exited"]
ShortText = Annotated[str, Field(max_length=300)]
Count = Annotated[int, Field(ge=0, lt=1 << 62)]

# How a task may end by itself. Whatever else an agent claims is an error of its own.
END_REASONS = frozenset(
    {
        JobReason.done_by_runner,
        JobReason.container_exited_with_error,
        JobReason.creating_container_error,
        JobReason.executor_error,
        JobReason.ports_binding_failed,
        JobReason.volume_error,
        JobReason.max_duration_exceeded,
        JobReason.terminated_by_user,
        JobReason.aborted_by_user,
    }
)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class TaskReport(_Part):
    id: ShortText
    state: TaskState
    at: Count = 0
    exit_status: int | None = None
    reason: ShortText | None = None
    message: str | None = None
    pull: PullProgress | None = None
    username: ShortText | None = None
    working_dir: str | None = Field(default=None, max_length=4096)
    log_end: Count = 0

    @property
    def end_reason(self) -> JobReason:
        """Why it ended, of the reasons an agent may give."""
        if self.reason is not None and self.reason in END_REASONS:
            return JobReason(self.reason)
        if self.reason is None and self.exit_status is not None:
            return JobReason.container_exited_with_error if self.exit_status else JobReason.done_by_runner
        return JobReason.executor_error


class LogBytes(_Part):
    task: ShortText
    offset: Count
    records: list[tuple[Count, str]] = Field(max_length=20_000)

    def decoded(self) -> list[tuple[Micros, bytes]]:
        try:
            return [(at, b64decode(text, validate=True)) for at, text in self.records]
        except (binascii.Error, ValueError):
            raise Invalid([Problem("a record is not base64", path="logs.records")]) from None


class GpuLoad(_Part):
    memory_usage_bytes: Count = 0
    util_percent: Annotated[float, Field(ge=0, le=100)] = 0


class MetricPoint(_Part):
    task: ShortText
    at: Count
    cpu_usage_micro: Count = 0
    memory_usage_bytes: Count = 0
    memory_working_set_bytes: Count = 0
    gpus: list[GpuLoad] = Field(default=[], max_length=64)


class Message(_Part):
    v: int = PROTOCOL
    instance: ShortText
    boot: Annotated[str, Field(min_length=1, max_length=100)]
    seq: Count
    agent: ShortText = ""
    facts: HostFacts | None = None
    tasks: list[TaskReport] = Field(default=[], max_length=MAX_TASKS)
    logs: list[LogBytes] = Field(default=[], max_length=MAX_TASKS)
    metrics: list[MetricPoint] = Field(default=[], max_length=MAX_TASKS)
    wait: Annotated[float, Field(ge=0, le=600)] = 0

    @field_validator("facts", mode="before")
    @classmethod
    def _known_facts(cls, facts: Any) -> Any:
        """Facts of a newer agent, without those that this version doesn't know."""
        if not isinstance(facts, dict):
            return facts
        known = {name: value for name, value in facts.items() if name in HostFacts.model_fields}
        if isinstance(known.get("gpus"), list):
            known["gpus"] = [_known_gpu(gpu) for gpu in known["gpus"]]
        return known


def _known_gpu(gpu: Any) -> Any:
    return (
        {name: value for name, value in gpu.items() if name in GpuSeen.model_fields} if isinstance(gpu, dict) else gpu
    )


def read_message(body: bytes | dict[str, Any]) -> Message:
    """The message, or Invalid with everything that is wrong with it."""
    if isinstance(body, bytes) and len(body) > MAX_MESSAGE:
        raise Invalid(
            f"The message has {len(body)} bytes; at most {MAX_MESSAGE} are taken.", hint="Send less log at a time."
        )
    try:
        message = Message.model_validate_json(body) if isinstance(body, bytes) else Message.model_validate(body)
    except ValidationError as error:
        found = [Problem(e["msg"], path=".".join(map(str, e["loc"]))) for e in error.errors(include_url=False)]
        raise Invalid(found) from None
    if message.v != PROTOCOL:
        raise Invalid(
            f"The agent speaks protocol {message.v}, this control plane {PROTOCOL}.", hint="Replace the agent."
        )
    return message
