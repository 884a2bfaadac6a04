"""The commands of a session to its agent: the server's orders, each passed on once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Optional, Union

from ..kernel.records import record
from .chunks import Chunk

if TYPE_CHECKING:
    from ...contract.agent import GatewayOrder, StreamOrder, Task


@record(frozen=True)
class Start:
    task: str
    spec: Task


@record(frozen=True)
class Stop:
    task: str
    grace: Optional[float]


@record(frozen=True)
class Abort:
    task: str


@record(frozen=True)
class Remove:
    task: str


@record(frozen=True)
class Trim:
    """The server has this task's log up to `offset`."""

    task: str
    offset: int


@record(frozen=True)
class Skip:
    """The server can't accept this part of the log, so it is skipped."""

    task: str
    offset: int
    end: int


@record(frozen=True)
class PutLog:
    """Upload this part of a log to `url`, and report the outcome (`put_done`)."""

    chunk: Chunk
    url: str
    headers: Dict[str, str]


@record(frozen=True)
class Rekey:
    """Let these keys log in to this task from now on, and no others."""

    task: str
    access: str
    keys: List[str]


@record(frozen=True)
class Reroute:
    """Make these the workers of this router's task."""

    task: str
    workers: str
    urls: List[str]


@record(frozen=True)
class SaveCredential:
    """Save this credential; every later message uses it."""

    credential: str


@record(frozen=True)
class Dial:
    """Connect this machine's end of a stream."""

    order: StreamOrder


@record(frozen=True)
class Carry:
    """Run this replica of a gateway; None: remove the gateway."""

    gateway: Optional[GatewayOrder]


@record(frozen=True)
class End:
    """End every task, delete everything, stop: the instance is no longer wanted."""


Command = Union[Start, Stop, Abort, Remove, Rekey, Reroute, Trim, Skip, PutLog, SaveCredential, Dial, Carry, End]
