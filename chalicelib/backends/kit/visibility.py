"""What was created and isn't listed yet. A provider's list lags behind what it has made, so that something new is
missing from it proves nothing; its handle says when it was made."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import Micros, from_iso
from chalicelib.errors import Transient

CREATED = "at"  # in a handle's data


def stamp(at: datetime) -> str:
    """A provider's time, as it stands in a handle: the same whichever call showed it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def is_fresh(handle: Handle, now: Micros, lag: Micros) -> bool:
    """May the provider not list it yet?"""
    made = handle.data.get(CREATED)
    return made is not None and now - from_iso(made) < lag


def check_settled(missing: Iterable[Handle], now: Micros, lag: Micros, provider: str) -> None:
    """Raises Transient if one of these, which aren't listed, may be there all the same."""
    for handle in missing:
        if is_fresh(handle, now, lag):
            raise Transient(f"{provider} doesn't show {handle.id} yet.")
