"""Resources that were created and may not be listed yet. A provider's list is delayed, so it proves nothing if a new
resource is missing. The resource's handle says when it was created."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar

from chalicelib.backends.kit.clock import Now
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND, Micros, from_iso
from chalicelib.errors import Gone, Transient

B = TypeVar("B")
CREATED = "at"  # in a handle's data


def stamp(at: datetime) -> str:
    """A provider's time as it is written to a handle: the same whichever call returned it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def is_fresh(handle: Handle, now: Micros, lag: Micros) -> bool:
    """Is it so new that the provider may not list it yet?"""
    created = handle.data.get(CREATED)
    return created is not None and now - from_iso(created) < lag


def check_settled(missing: Iterable[Handle], now: Micros, lag: Micros, provider: str) -> None:
    """Raises Transient if one of these resources may exist although it isn't listed."""
    for handle in missing:
        if is_fresh(handle, now, lag):
            raise Transient(f"{provider} doesn't show {handle.id} yet.")


def first_shown(
    handles: Sequence[Handle],
    listed: Mapping[str, B],
    find: Callable[[Handle], B | None],
    now: Micros,
    lag: Micros,
    provider: str,
) -> tuple[Handle, B] | None:
    """The first of these resources that is there: listed, by its id, or else found by itself, because a list may lack
    some. None: none is, and they are old enough for that to be certain."""
    for handle in handles:
        if handle.id in listed:
            return handle, listed[handle.id]
    check_settled(handles, now, lag, provider)
    return next(((handle, body) for handle in handles if (body := find(handle)) is not None), None)


class Lag:
    """How long a provider may not show what was created."""

    def __init__(self, provider: str, lag: Micros, now: Now) -> None:
        self._provider, self._lag, self._now = provider, lag, now

    def is_within(self, at: Micros) -> bool:
        """Is that so short ago?"""
        return self._now() - at < self._lag

    def is_fresh(self, handle: Handle) -> bool:
        return is_fresh(handle, self._now(), self._lag)

    def check_settled(self, handles: Iterable[Handle]) -> None:
        """Raises Transient if one of these may exist although it isn't listed."""
        check_settled(handles, self._now(), self._lag, self._provider)

    def gone(self, noun: str, handles: Sequence[Handle]) -> Gone:
        """That the provider has none of these. Raises Transient if one may exist all the same."""
        self.check_settled(handles)
        return Gone(f"{self._provider} has no {noun} {' or '.join(each.id for each in handles) or 'for this'}.")

    def first_shown(
        self, handles: Sequence[Handle], listed: Mapping[str, B], find: Callable[[Handle], B | None]
    ) -> tuple[Handle, B] | None:
        return first_shown(handles, listed, find, self._now(), self._lag, self._provider)


def if_there(ask: Callable[[], B]) -> B | None:
    """None: it is gone, or was never there."""
    try:
        return ask()
    except Gone:
        return None


def adopted(known: Sequence[Handle], end: Callable[[Handle], None]) -> Iterator[Handle]:
    """The first of what earlier calls created. Any other, of a creation whose answer was lost, and which was listed
    late, is ended."""
    yield known[0]
    for other in known[1:]:
        with suppress(Gone):
            end(other)


def check_time(begun: Micros, now: Micros, latest: Micros, provider: str) -> None:
    """Before a call that buys something, in a step that began then. Raises Transient if it might outlast the step, and
    what it buys be taken for what was never bought. What was looked up by then is cached for the next try."""
    if now - begun > latest:
        seconds = (now - begun) // SECOND
        raise Transient(f"{provider} answers slowly: what comes before the purchase took {seconds} seconds.")
