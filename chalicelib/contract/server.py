"""The server itself: its version, its data, its cost."""

from __future__ import annotations

from typing_extensions import TypedDict

from chalicelib.contract.values import Date


class ServerInfo(TypedDict):
    server_version: str
    """The version of the clients whose protocol it speaks."""


class Health(TypedDict):
    status: str
    server: str
    """Which one this is: the same for all addresses of one installation, and another's differs."""


class StoragePart(TypedDict):
    name: str
    bytes: int
    files: int
    whole: bool
    """False: too many files to count them all; the actual size is larger."""


class RetentionDays(TypedDict):
    """How many days things are kept."""

    events: int
    metrics: int
    logs: int
    deleted: int
    fleets: int
    archives: int


class SubscriptionState(TypedDict):
    """A webhook or a rule, and why it doesn't progress."""

    name: str
    failures: int
    dead: bool
    error: str
    retry_at: Date | None


class ServerUsage(ServerInfo):
    """The space that its data takes, in bytes."""

    parts: list[StoragePart]
    free: int | None
    """Bytes left on the disk."""
    days: RetentionDays
    subscriptions: list[SubscriptionState]


class CostPace(TypedDict):
    """Seconds between the calls of an agent."""

    fast: float
    slow: float
    presence: float
    log: float


class CostLine(TypedDict):
    driver: str
    """What causes it."""
    what: str
    amount: float
    price: float
    """Dollars for one unit."""
    unit: str
    dollars: float


class ServerCost(TypedDict):
    """What the control plane costs in a month; empty where calls cost nothing."""

    billed: bool
    prices: str
    pace: CostPace
    counts: dict[str, float]
    """How many there are of each driver."""
    lines: list[CostLine]
    total: float


class ServerObjective(TypedDict):
    """What the server promises its users, and how it keeps that."""

    name: str
    what: str
    """What goes well with an event that counts as good."""
    target: float
    """The share of events that must be good."""
    events: int
    """Within the window."""
    misses: int
    """Those that weren't good."""
    attained: float | None
    """The share that was good; null without events."""
    budget_left: float
    """The share of the allowed misses that is left; negative if there were more."""
    met: bool
    lately: float | None
    """The share that was good since yesterday's beginning, in UTC."""


class ServerSlo(TypedDict):
    """The server's objectives."""

    measured: bool
    """False where the server doesn't measure them itself: in AWS, CloudWatch has its metrics."""
    window_days: int
    objectives: list[ServerObjective]


class MetThing(TypedDict):
    """Something that isn't as the records of a restored server say."""

    kind: str
    """machine, disk, group: at a provider, and unknown; missing: recorded, and not there; agent, task, job: as an
    agent reports; account: a provider that couldn't be asked"""
    id: str
    says: str


class ServerRestoration(TypedDict):
    """A restored server only looks, for an hour or until an operator lets it act: it ends nothing."""

    as_of: Date
    """The moment of the records."""
    at: Date
    looks_until: Date
    went_on_at: Date | None
    """By an operator's word."""
    looking: bool
    whole: bool
    """False: some records are still to come, because the command that restores them was cut off."""
    met: list[MetThing]


class RestorationAnswer(TypedDict):
    restored: ServerRestoration | None
    """None: it never was."""
