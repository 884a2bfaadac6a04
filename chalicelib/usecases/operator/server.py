"""A control plane's information about itself."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Protocol

from chalicelib.domain import keys
from chalicelib.domain.instants import iso
from chalicelib.domain.retention import Retention
from chalicelib.domain.subscriptions import Subscription
from chalicelib.domain.usage import Measure
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


def info() -> dict[str, str]:
    return {"server_version": SERVED_VERSION}


def usage(plane: UsagePorts) -> dict[str, Any]:
    """The space that its data takes, and the days for which it is retained: for the operator."""
    found = plane.measure()
    parts = [asdict(part) for part in found.parts]
    days, followers = asdict(plane.retention), [_follower(one) for one in _subscriptions(plane)]
    return {**info(), "parts": parts, "free": found.free, "days": days, "subscriptions": followers}


def _subscriptions(plane: RecordPorts) -> list[Subscription]:
    found = all_of(plane.store, "main", keys.SUBSCRIPTIONS)
    return [nouns.read(Subscription, record) for record in found]


def _follower(one: Subscription) -> dict[str, Any]:
    """The state of a webhook or a rule, and why it doesn't progress."""
    retry_at = None if one.retry_at is None else iso(one.retry_at)
    return {"name": one.name, "failures": one.failures, "dead": one.dead, "error": one.error, "retry_at": retry_at}
