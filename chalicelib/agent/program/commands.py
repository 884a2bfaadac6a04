"""What a session has its agent do: the server's wishes, each passed on once."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Union

from ..kernel.records import record
from .chunks import Chunk

Body = Dict[str, Any]


@record(frozen=True)
class Start:
    task: str
    spec: Body


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
    """Put this part of a log there, and say how that went (`put_done`)."""

    chunk: Chunk
    url: str
    headers: Dict[str, str]


@record(frozen=True)
class Rekey:
    """From now on these keys may log in to this task, and no others."""

    task: str
    access: str
    keys: List[str]


@record(frozen=True)
class Reroute:
    """From now on these are the workers of this router's task."""

    task: str
    workers: str
    urls: List[str]


@record(frozen=True)
class Keep:
    """Save this credential; every later message uses it."""

    credential: str


@record(frozen=True)
class Dial:
    """The server wants an end of a stream: {id, ticket, task, target, …}."""

    order: Body


@record(frozen=True)
class Carry:
    """Carry this replica of a gateway: {id, num, http, https}. None: no gateway any more."""

    gateway: Optional[Body]


@record(frozen=True)
class End:
    """The instance is no longer wanted: end every task, leave nothing, stop."""


Command = Union[Start, Stop, Abort, Remove, Rekey, Reroute, Trim, Skip, PutLog, Keep, Dial, Carry, End]
