"""What a door needs of whoever opens it. Calls marked so may wait for a disk, and are made on threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Protocol

from chalicelib.domain.services import Traffic
from chalicelib.domain.serving import CallerVerdict, Served, ServedReplica

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Way = Callable[[ServedReplica], str]  # where a replica without an address is reached: a unix socket; empty: nowhere
Connected = Callable[[ServedReplica, float], Awaitable[bool]]  # does its agent give a sign within so many seconds?
Gone = Callable[[str], None]  # this job is no replica of a service any more
Report = Callable[[Sequence[Traffic]], None]  # on a thread


class Services(Protocol):
    def named(self, project: str, run: str) -> Served | None:
        """The live service of this name. On a thread."""

    def elsewhere(self, project: str, run: str) -> str:
        """The address of the live service of this name that has another door; empty: there is none. On a thread."""

    def of(self, run_id: str) -> Served | None:
        """The same by its run. On a thread."""

    def with_models(self, project: str) -> Sequence[Served]:
        """All live services of this project that have a model. On a thread."""


class MemberRights(Protocol):
    def member(self, token: str, project: str, run: str) -> CallerVerdict:
        """Is this the token of a member of the project, or of a global admin, or one of theirs for this service? Empty
        `run`: for all of the project's. On a thread."""


class Hears(Protocol):
    """Somebody whom a response passes by."""

    def begins(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None: ...

    def part(self, data: bytes) -> None: ...


class UpgradedEnd(Protocol):
    """What a connection is, once it isn't HTTP any more."""

    wire: Any

    def received(self, data: bytes) -> None: ...

    def full(self, full: bool) -> None:
        """The connection's own side doesn't read what it gets, or does so again."""

    def lost(self) -> None: ...

    def leave(self, reason: str) -> None:
        """The server ends it."""


class Wire(Protocol):
    """The client's connection."""

    lost: Callable[[], object] | None  # called once the connection has gone

    def recognised(self) -> None:
        """The caller's token was accepted."""

    def begin(self, status: int, headers: Sequence[tuple[bytes, bytes]], *, goes_on: bool) -> None:
        """The response's status and headers, their names in lower case. `goes_on`: more follows at once."""

    async def part(self, part: bytes, *, last: bool) -> None:
        """More of the response's body. Waits while the client has much to read."""

    def unhurried(self) -> None:
        """The request's body is passed on as it comes, however long that takes."""

    def leave(self) -> None:
        """Close at once, whatever is under way."""

    def upgrade(self, head: bytes, end: UpgradedEnd) -> None:
        """Answer the request with this; from now on the connection belongs to `end`."""

    def write(self, data: bytes) -> None: ...

    def hold(self, hold: bool) -> None:
        """Read nothing more for now, or go on."""

    def close(self) -> None:
        """Close once all has been sent."""
