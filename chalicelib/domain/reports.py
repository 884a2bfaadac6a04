"""Agents' reports on tasks and gateways. Validated strictly, because agents run beside users' programs.

Unknown fields are ignored, so that a newer agent can talk to an older control plane.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from chalicelib.domain.bounds import Amount, ExitStatus, Instant
from chalicelib.domain.gateways import GatewaySeat
from chalicelib.domain.jobs import Login, PullProgress
from chalicelib.domain.reasons import JobReason
from chalicelib.printable import printable, printable_lines

TaskState = Literal["preparing", "pulling", "running", "exited"]
ShortText = Annotated[str, Field(max_length=300)]
PrintableText = Annotated[ShortText, AfterValidator(printable)]  # shown to people
PrintableLines = Annotated[str, AfterValidator(printable_lines)]
Streak = Annotated[int, Field(ge=0, le=10_000)]
Port = Annotated[int, Field(ge=1, le=65_535)]
MOST_PROBES = 10

# The reasons for which a task can end by itself. Anything else an agent reports is treated as its error.
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


class AgentInput(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class TaskReport(AgentInput):
    id: ShortText
    state: TaskState
    at: Instant = 0
    exit_status: ExitStatus | None = None
    reason: PrintableText | None = None
    message: PrintableLines | None = None
    pull: PullProgress | None = None
    username: PrintableText | None = None
    working_dir: Annotated[str, Field(max_length=4096), AfterValidator(printable)] | None = None
    ssh: Login | None = None
    log_end: Amount = 0
    access: ShortText | None = None  # the revision of the keys that may log in; None: its agent can't change them
    mounted: tuple[ShortText, ...] = ()  # volumes that are mounted for it, and so have a filesystem
    held: tuple[ShortText, ...] = ()  # exited: volumes that couldn't be unmounted yet
    held_by: PrintableLines | None = None  # the processes that use them
    connections: Amount | None = None  # the number of people's sessions in it
    idle_since: Instant | None = None  # when the last session ended, by the machine's clock
    # Of a service's replica; None: not known yet, or its agent is of an earlier version.
    listens: bool | None = None  # something accepts connections on its port
    probes: tuple[Streak, ...] | None = Field(default=None, max_length=MOST_PROBES)  # successes in a row
    host_port: Port | None = None  # the port that it got on the host whose network it shares
    address: IPv4Address | None = None  # where that host reaches its port
    queue: Amount | None = None  # requests that wait inside its engine
    workers: ShortText | None = None  # of a service's router: the revision of its list of workers that the agent uses
    cleared: ShortText | None = None  # the latest of these revisions whose workers were the router's only ones

    @property
    def end_reason(self) -> JobReason:
        """Why it ended; one of the reasons that an agent may report."""
        if self.reason is not None and self.reason in END_REASONS:
            return JobReason(self.reason)
        if self.reason is None and self.exit_status is not None:
            return JobReason.container_exited_with_error if self.exit_status else JobReason.done_by_runner
        return JobReason.executor_error


class GatewayReport(AgentInput):
    """The state of the gateway's replica on a machine."""

    id: ShortText
    num: Amount
    http: Port
    https: Port | None = None
    state: Literal["starting", "installing", "running", "failed"]
    message: Annotated[PrintableLines, Field(max_length=1000)] = ""

    def is_of(self, seat: GatewaySeat | None) -> bool:
        if seat is None or seat.leaving:
            return False
        reported = (self.id, self.num, self.http, self.https)
        return reported == (seat.gateway_id, seat.num, seat.http_port, seat.https_port)
