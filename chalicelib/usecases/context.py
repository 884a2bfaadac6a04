"""`Plane`: all that a composition root provides for use cases. Each takes the part that it needs (`ports.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from chalicelib.domain.retention import Retention
from chalicelib.domain.tenants import Permissions
from chalicelib.domain.usage import Measure, StorageUsage
from chalicelib.engine.ports import (
    AccountWork,
    Backends,
    Catalog,
    ChangeLog,
    Clock,
    ConfigurationCheck,
    Hold,
    NoHold,
    NotifyAgents,
    Rights,
    Streams,
    Wake,
    no_connections,
)
from chalicelib.errors import Bug, Refused
from chalicelib.store.cache import Lru
from chalicelib.store.port import Change, Put, Store
from chalicelib.usecases.pace import Pace

if TYPE_CHECKING:
    from chalicelib.backends.spi import Backend
    from chalicelib.domain.facts import BackendFacts
    from chalicelib.domain.leases import Epoch
    from chalicelib.domain.market_answers import MarketAnswer
    from chalicelib.domain.offer_requests import OfferRequest
    from chalicelib.domain.specs.reading import Spec
    from chalicelib.domain.specs.sign_on import SignOnProvider
    from chalicelib.domain.specs.workload_rules import Workload
    from chalicelib.engine.commit import RequestCommitter
    from chalicelib.engine.counters import Counters
    from chalicelib.engine.read import Reader
    from chalicelib.store.blobs import Blobs
    from chalicelib.store.log_uploads import Uploads
    from chalicelib.store.logs import LogStore
    from chalicelib.store.seal import Sealer

TRIES = 5  # commits under contention before the caller gets an error


@dataclass(frozen=True)
class SizeLimits:
    """The size limits of the control plane, in bytes."""

    body: int = 8 * 1024 * 1024
    upload: int = 2 * 1024 * 1024
    uploads: int = 2 * 1024 * 1024 * 1024  # of all uploads of a user
    answer: int = 4 * 1024 * 1024
    log_bytes_per_hour: int = 50 * 1024 * 1024


@dataclass(frozen=True)
class JobImages:
    """The images of jobs that set none. `{python}` is filled in."""

    base: str = "python:{python}"
    devel: str = "nvidia/cuda:12.8.1-devel-ubuntu24.04"
    python: str = "3.12"
    docker: str = "docker:28-dind"  # of jobs with a container engine of their own


class Joining(Protocol):
    """The script with which a machine joins a fleet by itself, and the check of that machine."""

    @property
    def server_url(self) -> str: ...

    def script(self) -> str: ...

    def command(self, token: str) -> str:
        """The command line to paste on the machine."""

    def missing(self, inspection: str, project_id: str) -> tuple[str, ...]:
        """What a machine with this inspection report lacks to run the agent, each with a remedy."""


@dataclass(frozen=True)
class DeviceCode:
    """A code with which a user signs on in a browser on another device."""

    device_code: str
    user_code: str
    address: str
    filled_address: str  # contains the code; may be empty
    interval: int  # seconds between polls
    expires_in: int


class VerifiesWorkloads(Protocol):
    """The issuers whose tokens programs may show."""

    def verified(self, token: str) -> tuple[Sequence[Workload], Mapping[str, Any]]:
        """The rules for the issuer of an ID token, and its claims. Raises Refused unless the issuer signed it."""


class NoWorkloads:
    def verified(self, token: str) -> tuple[Sequence[Workload], Mapping[str, Any]]:
        raise Refused(
            "No program can sign on here: no `workloads` are configured.",
            hint="An admin of this control plane can add them to its configuration.",
        )


class SignsOn(Protocol):
    """A provider of accounts. Every method raises Refused if it can't be used, or refuses."""

    @property
    def rules(self) -> SignOnProvider: ...

    def address(self, redirect: str, state: str, nonce: str, verifier: str) -> str:
        """The address at which a browser signs on."""

    def account(self, code: str, redirect: str, nonce: str, verifier: str) -> Mapping[str, Any]:
        """The verified claims of the account that signed on."""

    def device(self) -> DeviceCode: ...

    def device_account(self, device_code: str) -> Mapping[str, Any] | None:
        """The verified claims; None while nobody has signed on."""


def _none(configuration: object) -> Any:
    raise Bug("this plane makes no backends")


class NoAccountWork:
    """The account work of a plane that does none."""

    def sweep(self, account: str) -> None:
        raise Bug("this plane sweeps no accounts")

    def refresh(self, account: str) -> None:
        raise Bug("this plane fetches no offers")

    def check(self, configuration: ConfigurationCheck) -> None:
        raise Bug("this plane checks no configurations")

    def offers(self, asks: Sequence[tuple[str, OfferRequest]]) -> Sequence[MarketAnswer | None]:
        raise Bug("this plane asks no markets")


@dataclass(frozen=True)
class Providers:
    """The types of backends that this plane can make from a configuration."""

    types: frozenset[str] = frozenset()
    make: Callable[[Spec], Backend] = _none
    facts: Callable[[str], BackendFacts] = _none  # of a type


@dataclass(frozen=True, kw_only=True)
class PlanePorts:
    """What a composition root provides for use cases."""

    #                        embedded                           in AWS
    #                        --------------------------------   --------------------------------
    store: Store  #          SQLite                             DynamoDB
    blobs: Blobs  #          files                              S3
    logs: LogStore  #        files                              chunks in S3
    seal: Sealer  #          a key file, and the user's keys    an SSM SecureString
    install_key: bytes  #    a key file                         an SSM SecureString; signs bootstrap tokens
    backends: Backends  #    the store's and the simulated      the store's
    wake: Wake  #            the reconciler's thread            invokes functions.reconcile
    notify_agents: NotifyAgents  # ends the agents' long polls        nobody waits
    pace: Pace  #            calls are held                     calls are billed
    clock: Clock  #          the machine's                      the machine's
    random_id: Callable[[], str]  # UUIDs of version 4
    random_token: Callable[[], str]  # secrets of at least 128 bits
    measure: Measure = StorageUsage  # the data folder          nothing: AWS shows sizes
    uploads: Uploads | None = None  # output comes in messages  into S3, without a function
    streams: Streams | None = None  # between connections here  none: no connection lasts there
    serves: bool = True  #   takes services' requests           no answer lasts there, so they need gateways
    account_work: AccountWork = field(default_factory=NoAccountWork)  # a pool of threads  functions.provider
    rights: Rights = no_connections  # ends streams and long polls  nothing is open
    templates: Callable[[], Mapping[str, bytes]] = dict  # a folder's files by name  none
    counters: Counters | None = None  # of the engine here        none: CloudWatch has them
    problems: Callable[[], Mapping[str, str]] = dict  # why it isn't ready, by check  none: alarms say it
    journal: ChangeLog | None = None  # of this process's commits  the events in the store
    renew: Callable[[Put], None] | None = None  # renews a promise in the next batch  written at once
    hold: Hold = field(default_factory=NoHold)  # after a restore, until it acts again  the same
    epoch: Epoch | None = None  # of a server of a pair         none: it has no standby
    # What the operator chose:
    traces: bool = False  # of runs, for whoever collects them
    limits: SizeLimits = field(default_factory=SizeLimits)
    images: JobImages = field(default_factory=JobImages)
    permissions: Permissions = field(default_factory=Permissions)
    providers: Providers = field(default_factory=Providers)
    retention: Retention = field(default_factory=Retention)
    sign_on: Mapping[str, SignsOn] = field(default_factory=dict)  # providers of accounts, by name
    workloads: VerifiesWorkloads = field(default_factory=NoWorkloads)  # which programs may sign on

    def shared(self) -> dict[str, Any]:
        """These ports, without those that a subclass adds."""
        return {each.name: getattr(self, each.name) for each in fields(PlanePorts)}


@dataclass(frozen=True, kw_only=True)
class Plane(PlanePorts):
    """The ports, and what the root makes of them."""

    catalog: Catalog
    install_id: str
    hosts: bool = True  # whether it can log in to hosts over SSH
    joining: Joining | None = None  # how machines join by themselves
    along: tuple[Change, ...] = ()  # committed with the first plan that is committed, or not at all
    people_url: str = ""  # the address that users open
    announces: bool = False  # whether state changes go to a bus, which is billed
    name_hints: Lru[str] = field(
        default_factory=lambda: Lru(4096)
    )  # recent targets of names: hints, which are verified

    @cached_property
    def committer(self) -> RequestCommitter:
        """The committer for user requests and agent reports, whose plans are checked like any other."""
        from chalicelib.engine.commit import RequestCommitter  # it imports all decisions, which only changes need

        return RequestCommitter(self.read, wake=self.wake, notify_agents=self.notify_agents, along=self.along)

    @cached_property
    def read(self) -> Reader:
        from chalicelib.engine.read import Reader

        return Reader(self.store)
