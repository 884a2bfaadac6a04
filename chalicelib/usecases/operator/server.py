"""A control plane's information about itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, day_of
from chalicelib.domain.objectives import WINDOW_DAYS, ObjectiveDay, Standing, standings
from chalicelib.domain.retention import Retention
from chalicelib.domain.subscriptions import Subscription
from chalicelib.domain.usage import Measure, StorageUsage
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.usecases.ports import RecordPorts

if TYPE_CHECKING:
    from chalicelib.engine.counters import Counters

SERVED_VERSION = "0.22.5"  # the client version whose wire format this is; clients don't compare it


class UsagePorts(RecordPorts, Protocol):
    """The ports for storage usage and retention."""

    @property
    def measure(self) -> Measure: ...

    @property
    def retention(self) -> Retention: ...


class StandingPorts(RecordPorts, Protocol):
    """The ports for the server's objectives."""

    @property
    def counters(self) -> Counters | None: ...


@dataclass(frozen=True)
class ServerStanding:
    measured: bool  # by this server; False in AWS, where CloudWatch has the metrics
    window: Sequence[Standing]  # over the last weeks
    day: Sequence[Standing]  # today and yesterday, in UTC


@dataclass(frozen=True)
class ServerUsage:
    storage: StorageUsage
    retention: Retention
    subscriptions: list[Subscription]


def usage(plane: UsagePorts) -> ServerUsage:
    """The space that its data takes, and the days for which it is retained: for the operator."""
    found = all_of(plane.store, "main", keys.SUBSCRIPTIONS)
    return ServerUsage(plane.measure(), plane.retention, [nouns.read(Subscription, record) for record in found])


def standing(plane: StandingPorts) -> ServerStanding:
    """How the server keeps its objectives: over weeks, and lately."""
    today = day_of(plane.clock.now())
    since = today - (WINDOW_DAYS - 1) * DAY
    low = keys.objective_day(since)
    days = [nouns.read(ObjectiveDay, each) for each in all_of(plane.store, "main", low.pk, low=low.sk)]
    return ServerStanding(plane.counters is not None, standings(days, since), standings(days, today - DAY))
