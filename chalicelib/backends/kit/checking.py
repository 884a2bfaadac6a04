"""Checks of an account: all that is wrong with it is found before any of it is reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chalicelib.errors import BackendError, MissingPermission, Unfit


def problems(*calls: Callable[[], object]) -> list[BackendError]:
    """What these find to be wrong. That a provider doesn't answer isn't; it is raised."""
    found: list[BackendError] = []
    for call in calls:
        try:
            call()
        except (MissingPermission, Unfit) as error:
            found.append(error)
    return found


def report(found: Sequence[BackendError], hint: str = "") -> None:
    """Raises MissingPermission with all that is denied, or else Unfit with all that is wrong, if anything is."""
    denied = [error for error in found if isinstance(error, MissingPermission)]
    if found:
        kind = MissingPermission if denied else Unfit
        raise kind(" ".join(dict.fromkeys(map(str, denied or found))), hint=hint)
