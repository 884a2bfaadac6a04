"""A control plane's information about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from chalicelib.domain import keys
from chalicelib.domain.retention import Retention
from chalicelib.domain.subscriptions import Subscription
from chalicelib.domain.usage import Measure, StorageUsage
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.usecases.ports import RecordPorts

SERVED_VERSION = "0.22.5"  # the client version whose wire format this is; clients don't compare it


class UsagePorts(RecordPorts, Protocol):
    """The ports for storage usage and retention."""

    @property
    def measure(self) -> Measure: ...

    @property
    def retention(self) -> Retention: ...


@dataclass(frozen=True)
class ServerUsage:
    storage: StorageUsage
    retention: Retention
    subscriptions: list[Subscription]


def usage(plane: UsagePorts) -> ServerUsage:
    """The space that its data takes, and the days for which it is retained: for the operator."""
    found = all_of(plane.store, "main", keys.SUBSCRIPTIONS)
    return ServerUsage(plane.measure(), plane.retention, [nouns.read(Subscription, record) for record in found])
