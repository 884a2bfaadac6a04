"""The protocols between a door and the server that opens it. Calls marked "on a thread" may block."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Protocol

from chalicelib.domain.services import Traffic
from chalicelib.domain.serving import CallerVerdict, Served, ServedReplica

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
# The unix socket at which a replica without an address is reached; empty: there is none.
SocketPath = Callable[[ServedReplica], str]
Connected = Callable[[ServedReplica, float], Awaitable[bool]]  # whether its agent responds within this many seconds
ReplicaGone = Callable[[str], None]  # called with a job that is no replica of a service any more
Report = Callable[[Sequence[Traffic]], None]  # on a thread


class Services(Protocol):
    def named(self, project: str, run: str) -> Served | None:
        """The live service of this name. On a thread."""

    def elsewhere(self, project: str, run: str) -> str:
        """The address of the live service of this name behind another door; empty if there is none. On a thread."""

    def of(self, run_id: str) -> Served | None:
        """The live service of this run. On a thread."""

    def with_models(self, project: str) -> Sequence[Served]:
        """All live services of this project that have a model. On a thread."""


class MemberRights(Protocol):
    def member(self, token: str, project: str, run: str) -> CallerVerdict:
        """Whether this is the token of a member of the project or of a global admin, or a token that one of them made
        for this service. Empty `run`: for all services of the project. On a thread."""


class ResponseObserver(Protocol):
    """Reads a response while it is passed on."""

    def begins(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None: ...

    def part(self, data: bytes) -> None: ...


class UpgradedEnd(Protocol):
    """The owner of a connection that has been upgraded from HTTP."""

    wire: Any

    def received(self, data: bytes) -> None: ...

    def full(self, full: bool) -> None:
        """The connection's peer reads too slowly, or has caught up."""

    def lost(self) -> None: ...

    def leave(self, reason: str) -> None:
        """End it from the server."""


class Wire(Protocol):
    """The client's connection."""

    lost: Callable[[], object] | None  # called once the connection is lost

    def recognised(self) -> None:
        """The caller's token was accepted."""

    def begin(self, status: int, headers: Sequence[tuple[bytes, bytes]], *, goes_on: bool) -> None:
        """The response's status and headers, their names in lower case. `goes_on`: more follows at once."""

    async def part(self, part: bytes, *, last: bool) -> None:
        """Send more of the response's body. Waits while the client reads too slowly."""

    def unhurried(self) -> None:
        """Lift the time limit for the request's body, which is streamed from now on."""

    def leave(self) -> None:
        """Close at once, even with data under way."""

    def upgrade(self, head: bytes, end: UpgradedEnd) -> None:
        """Answer the request with this; from now on the connection belongs to `end`."""

    def write(self, data: bytes) -> None: ...

    def hold(self, hold: bool) -> None:
        """Pause reading, or resume it."""

    def close(self) -> None:
        """Close once all has been sent."""
