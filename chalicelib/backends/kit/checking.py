"""Checks of an account: all that is wrong with it is found before any of it is reported."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from chalicelib.errors import BackendError, Gone, MissingPermission, Unfit

T = TypeVar("T")


def problems(*calls: Callable[[], object]) -> list[BackendError]:
    """What these find to be wrong. That a provider doesn't answer isn't; it is raised."""
    found: list[BackendError] = []
    for call in calls:
        try:
            call()
        except (MissingPermission, Unfit) as error:
            found.append(error)
    return found


def must_exist(ask: Callable[[], T], otherwise: str, hint: str = "") -> T:
    """What the settings name. Raises Unfit with the text if that is gone, or was never there."""
    try:
        return ask()
    except Gone as error:
        raise Unfit(otherwise, hint=hint) from error


def check_regions(provider: str, wanted: Sequence[str] | None, known: Collection[str], noun: str = "region") -> None:
    """Raises Unfit if the settings name a region that the provider doesn't have."""
    if wrong := [each for each in wanted or () if each not in known]:
        raise Unfit(
            f"{provider} has no {noun} {', '.join(wrong)}.", hint=f"`regions` can have {', '.join(sorted(known))}."
        )


def report(found: Sequence[BackendError], hint: str = "") -> None:
    """Raises MissingPermission with all that is denied, or else Unfit with all that is wrong, if anything is."""
    denied = [error for error in found if isinstance(error, MissingPermission)]
    if found:
        kind = MissingPermission if denied else Unfit
        raise kind(" ".join(dict.fromkeys(map(str, denied or found))), hint=hint)
