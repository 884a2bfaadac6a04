"""The protocols through which the engine and the use cases reach the outside. Only `runtime` names implementations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from chalicelib.domain.backends import account_key
from chalicelib.domain.instants import SECOND, Micros

if TYPE_CHECKING:
    from chalicelib.backends.accounts import Account
    from chalicelib.backends.spi import Backend
    from chalicelib.contract.agent import StreamOrder
    from chalicelib.domain.facts import BackendFacts
    from chalicelib.domain.market_answers import MarketAnswer
    from chalicelib.domain.offer_requests import OfferRequest
    from chalicelib.domain.restorations import Met
    from chalicelib.domain.state_changes import StateChange
    from chalicelib.domain.touched import Touched
    from chalicelib.domain.workflows import Workflow
    from chalicelib.planning.kernel.plan import Effect
    from chalicelib.planning.matching.offer_book import OfferBook
    from chalicelib.store.port import Record


PLAN_WAITS: Micros = 8 * SECOND  # for markets


class Clock(Protocol):
    def now(self) -> Micros: ...


class Wake(Protocol):
    def __call__(self, units: Iterable[str], /) -> None:
        """Have these units processed soon. A hint: losing it costs latency, never correctness."""


class Effects(Protocol):
    def submit(self, effect: Effect) -> None:
        """Execute a committed effect, now or soon, here or elsewhere (a thread, another Lambda). A lost effect is
        repeated by a pass over its unit, once `act_until` has passed."""


@dataclass(frozen=True)
class ConfigurationCheck:
    """A request to check at a provider whether a configuration of a backend works."""

    project_id: str
    type: str
    config: str  # JSON, with its secrets sealed as in the store
    expected: Mapping[str, str] = field(default_factory=dict)  # machines that it must show: names by id

    @property
    def account(self) -> str:
        return account_key(self.type, self.project_id)


class AccountWork(Protocol):
    """Work on one account, done where its provider's SDK is: by the functions of an artefact, or by a few threads. No
    account waits for another's work."""

    def sweep(self, account: str) -> None:
        """Compare the provider's resources with the store, soon."""

    def refresh(self, account: str) -> None:
        """Fetch the offers soon; if the account isn't configured (any more), delete them."""

    def check(self, request: ConfigurationCheck) -> None:
        """Check a configuration while the caller waits. Raises the provider's error, Refused if its SDK isn't
        installed, and Transient if the check takes too long."""

    def offers(self, asks: Sequence[tuple[str, OfferRequest]]) -> Sequence[MarketAnswer | None]:
        """What the markets of these accounts answer now, while a plan waits, in their order; None: not in time."""


class DeadLetterQueue(Protocol):
    def __call__(self) -> Iterator[str]:
        """The events that failed too often to be delivered again. Each is deleted when the next is requested, so it is
        delivered again if the reader crashes."""


class Count(Protocol):
    def __call__(self, name: str, number: int) -> None:
        """Add `number` to the metric `name`, for the operator. No decision depends on it."""


class Bus(Protocol):
    def __call__(self, changes: Sequence[StateChange]) -> Set[str]:
        """Publish these changes in order. Returns the ids of those that weren't accepted."""


class Feed(Protocol):
    """The records of events in the order of their commits, where the store belongs to one process."""

    def feed_end(self) -> int:
        """The position of the latest record; 0 before the first."""

    def feed_after(self, place: int, limit: int) -> Sequence[tuple[int, Record]]:
        """The records after this position, each with its own position."""


class ChangeLog(Protocol):
    """What has been written lately, for callers that follow the things of their projects."""

    @property
    def exact(self) -> bool:
        """Does it have every write? Otherwise it has those that are events, which is nearly all."""

    def mark(self) -> str:
        """The present: what is written from now on is found `since` it."""

    def since(self, mark: str, projects: Collection[str]) -> Touched | None:
        """What was written in these projects (ids) since, or earlier; None if that isn't known any more."""


class Hold(Protocol):
    """The restraint of a server that was restored from a backup: it ends nothing while it only looks."""

    @property
    def looking(self) -> bool: ...

    @property
    def as_of(self) -> Micros:
        """The moment of the records that came back: what happened before was announced already. 0: none did."""

    def met(self, *found: Met) -> None:
        """Note what isn't as the records say."""


class NoHold:
    """`Hold` of a server that acts."""

    looking = False
    as_of: Micros = 0

    def met(self, *found: Met) -> None:
        """Do nothing."""


class NotifyAgents(Protocol):
    def __call__(self, instance_ids: Iterable[str]) -> None:
        """End the long polls of these instances' agents, because something that they wait for has changed. A hint."""


class Rights(Protocol):
    def __call__(self) -> None:
        """Somebody's rights or keys have changed: end the streams that aren't permitted any more, and the agents' long
        polls. A hint."""


def no_connections() -> None:
    """Do nothing, where no connections stay open."""


class Streams(Protocol):
    """Streams of bytes between a client and a job, over a connection that the job's host makes to the plane."""

    def open(self, instance_id: str, user: str, order: Mapping[str, Any], permitted: Callable[[], bool]) -> str:
        """The id of a new stream for this user, which waits for the instance's agent to carry out the order. The stream
        is ended soon after `permitted` has become false. Raises Refused if there are too many."""

    def orders(self, instance_id: str) -> list[StreamOrder]:
        """The streams that the instance's agent should dial now: each order with its `id` and `ticket`."""

    def pass_on(self, instance_id: str, order: StreamOrder) -> None:
        """Have the instance's agent dial another server, which issued the order's `id` and `ticket`. Sent once."""

    def claim(self, stream_id: str, ticket: str) -> None:
        """Admit an agent that dials. Raises Forbidden if the ticket isn't valid (any more)."""


class Backends(Protocol):
    """The backends of each project, with its own credentials and settings."""

    def of(self, project_id: str, type: str, *, now: bool = False) -> Backend:
        """The project's backend of that type. If it isn't configured (any more), each of its calls raises that. `now`:
        as stored at this moment, which is required for creating anything: a deleted backend couldn't delete it
        again."""

    def facts(self, project_id: str) -> Mapping[str, BackendFacts]:
        """The facts of each of the project's backends, by type. Needs no SDK and no credentials."""

    def accounts(self, project_id: str | None = None) -> Sequence[Account]:
        """All accounts, or those that serve one project."""

    def account(self, key: str) -> Account | None:
        """The account with that key, as stored at this moment; None if it isn't configured (any more)."""

    def held(self) -> AbstractContextManager[object]:
        """A context in which this thread sees the accounts as of its first read, in spite of changes."""

    def invalidate(self, *accounts: str) -> None:
        """Read these accounts (keys) again, because this process has changed them."""

    def close(self) -> None: ...


class Performer(Protocol):
    """Performs the steps of one workflow. Both methods may be repeated, even after a call that never returned, and
    `undo` must cope with a step that was half done or not done. They raise a BackendError if they fail,
    and NotYet to wait."""

    def do(self, step: str, workflow: Workflow) -> Mapping[str, str] | None:
        """Perform the step. Returns the ids of created resources, for `workflow.state`."""

    def undo(self, step: str, workflow: Workflow) -> Mapping[str, str] | None: ...


class Executions(Protocol):
    """State machines that drive workflows. Each call may be repeated."""

    def start(self, definition: str, name: str) -> None:
        """Begin the execution of that name, unless there is or was one."""

    def succeed(self, token: str, created: Mapping[str, str]) -> None:
        """Report that the step that waits with this token is done. Ignored if it doesn't wait any more."""

    def fail(self, token: str, error: str, message: str) -> None: ...


@dataclass(frozen=True)
class Age:
    """The age of one backend's offers."""

    taken_at: Micros | None  # None: it has never answered
    error: str = ""  # why the latest refresh failed
    prices: str = ""  # the source of the prices, if not the provider
    outlived: Micros | None = None  # how long they hold, if they are older than that


class Catalog(Protocol):
    def book(self, project_id: str) -> OfferBook:
        """Everything that could be bought for this project, as of the last refresh. Never calls a cloud."""

    def answers(self, project_id: str, queries: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], MarketAnswer]:
        """What markets have answered for this project, by backend and key of the request."""

    def ages(self, project_id: str) -> Mapping[str, Age]:
        """The age of the offers of each of the project's backends, by type."""
