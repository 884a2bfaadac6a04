"""What the engine and the use cases need from the outside, as protocols. Only `runtime` names implementations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from chalicelib.domain.backends import account_key
from chalicelib.domain.instants import Micros

if TYPE_CHECKING:
    from chalicelib.backends.accounts import Account
    from chalicelib.backends.spi import Backend
    from chalicelib.domain.facts import BackendFacts
    from chalicelib.domain.state_changes import StateChange
    from chalicelib.domain.workflows import Workflow
    from chalicelib.planning.kernel.plan import Effect
    from chalicelib.planning.matching.offer_book import OfferBook
    from chalicelib.store.port import Record


class Clock(Protocol):
    def now(self) -> Micros: ...


class Wake(Protocol):
    def __call__(self, units: Iterable[str], /) -> None:
        """Look at these units soon. A hint: losing it costs latency, never correctness."""


class Effects(Protocol):
    def submit(self, effect: Effect) -> None:
        """Execute a committed effect, now or soon, here or elsewhere (a thread, another Lambda). Losing it is repaired
        by the next pass over its instance, once `act_until` has passed."""


@dataclass(frozen=True)
class ConfigurationCheck:
    """Asks a provider whether a configuration of a backend works."""

    project_id: str
    type: str
    config: str  # JSON, its secrets sealed as where it is stored
    expected: Mapping[str, str] = field(default_factory=dict)  # machines that it must show: names by id

    @property
    def account(self) -> str:
        return account_key(self.type, self.project_id)


class AccountWork(Protocol):
    """Work on one account, done where its provider's SDK is: by the functions of an artefact, or by a few threads. None
    of it waits for another account's."""

    def sweep(self, account: str) -> None:
        """Compare what the provider has with what the store says, soon."""

    def refresh(self, account: str) -> None:
        """Fetch the offers soon; for an account that isn't configured (any more), forget them."""

    def check(self, asked: ConfigurationCheck) -> None:
        """Now, while the caller waits. Raises what the provider says is wrong, Refused where its SDK isn't, Transient
        if that takes too long."""


class DeadLetterQueue(Protocol):
    def __call__(self) -> Iterator[str]:
        """The messages that failed so often that they are delivered no more. One is forgotten when the next is asked
        for, so that it comes again if whoever reads it dies."""


class Count(Protocol):
    def __call__(self, name: str, number: int) -> None:
        """So many more of what `name` counts, for the operator. Nothing is decided by it."""


class Bus(Protocol):
    def __call__(self, changes: Sequence[StateChange]) -> Set[str]:
        """Announce these, in order. The ids of those that it didn't take."""


class Feed(Protocol):
    """The records of events in the order of their commits, where one process keeps the store."""

    def feed_end(self) -> int:
        """The place of the last record that was ever added; 0 before the first."""

    def feed_after(self, place: int, limit: int) -> Sequence[tuple[int, Record]]:
        """The records behind this place, each with its own."""


class NotifyAgents(Protocol):
    def __call__(self, instance_ids: Iterable[str]) -> None:
        """Something that these instances' agents wait for has changed: end their long polls. A hint."""


class Rights(Protocol):
    def __call__(self) -> None:
        """Somebody's rights or keys have changed: end what they may have no longer, and let every agent ask. A hint."""


def no_connections() -> None:
    """No connection lasts here, so nothing is open that could be lost."""


class Streams(Protocol):
    """Bytes between a client and a job, over a connection that the job's host makes to the plane."""

    def open(self, instance_id: str, user: str, order: Mapping[str, Any], may: Callable[[], bool]) -> str:
        """The id of a stream for this user that waits for that instance's agent, which gets the order. It ends soon
        after the user `may` have it no longer. Raises Refused where there are too many."""

    def orders(self, instance_id: str) -> list[dict[str, Any]]:
        """What the instance's agent should dial now: each order with `id` and `ticket`."""

    def pass_on(self, instance_id: str, order: Mapping[str, Any]) -> None:
        """The instance's agent should dial somebody else, who made the order's `id` and `ticket`: it is told once."""

    def claim(self, stream_id: str, ticket: str) -> None:
        """An agent dials. Raises Forbidden for a ticket that isn't good, or not any more."""


class Backends(Protocol):
    """Which backends each project has, with its own credentials and settings."""

    def of(self, project_id: str, type: str, *, now: bool = False) -> Backend:
        """The project's backend of that type. If it isn't configured (any more), each of its calls says so. `now`: as
        it is stored at this moment. Whatever is made is made so, because a deleted backend couldn't end it."""

    def facts(self, project_id: str) -> Mapping[str, BackendFacts]:
        """What each of the project's backends can do, by type. Needs no SDK and no credentials."""

    def accounts(self, project_id: str | None = None) -> Sequence[Account]:
        """Every account, or those that serve one project."""

    def account(self, key: str) -> Account | None:
        """The account of that key, as it is stored at this moment. None: it isn't configured (any more)."""

    def held(self) -> AbstractContextManager[object]:
        """Within it, this thread sees the accounts as they were when it first asked, whatever changes meanwhile."""

    def invalidate(self, *accounts: str) -> None:
        """These have been changed, here and now; each by its key."""

    def close(self) -> None: ...


class Performer(Protocol):
    """Performs the steps of one workflow. Both methods may be repeated, even after a call that never returned, and
    `undo` must cope with a step that was half done or not done. They raise a BackendError if they fail,
    and NotYet to wait."""

    def do(self, step: str, workflow: Workflow) -> Mapping[str, str] | None:
        """Returns the ids of what was created, for `workflow.state`."""

    def undo(self, step: str, workflow: Workflow) -> Mapping[str, str] | None: ...


class Executions(Protocol):
    """State machines that drive workflows. Each call may be repeated."""

    def start(self, definition: str, name: str) -> None:
        """Begin the execution of that name, unless there is or was one."""

    def succeed(self, token: str, made: Mapping[str, str]) -> None:
        """The step that waits with this token is done. One that doesn't wait any more is left alone."""

    def fail(self, token: str, error: str, message: str) -> None: ...


@dataclass(frozen=True)
class Age:
    """How old the offers of one backend are."""

    taken_at: Micros | None  # None: it has never answered
    error: str = ""  # why the last refresh brought nothing newer
    prices: str = ""  # where they are from, if not from the provider
    outlived: Micros | None = None  # how long they hold, if they are older than that


class Catalog(Protocol):
    def book(self, project_id: str) -> OfferBook:
        """What could be bought for this project, as of the last refresh. Never calls a cloud."""

    def ages(self, project_id: str) -> Mapping[str, Age]:
        """How old the offers of each of the project's backends are, by type."""
