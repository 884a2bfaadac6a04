"""Checking at a provider, where its SDK is installed, whether a backend's configuration works."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from chalicelib.backends.spi import Backend
from chalicelib.domain.names import first_of
from chalicelib.domain.owner import same_install
from chalicelib.errors import Refused, Throttled

TURNS = 15.0  # seconds in all that a check waits for its turn, of the 24 that it may take


def check(backend: Backend, expected: Mapping[str, str], install_id: str) -> None:
    """Check a backend. Raises the provider's error, or Refused if one of the `expected` machines (names by id) isn't
    listed, as in another account: it would count as gone, but continue to run."""
    backend.check()
    if not expected:
        return
    listed = {one.instance_id for one in backend.list_owned() if same_install(one.install, install_id)}
    if lost := sorted(name for id_, name in expected.items() if id_ not in listed):
        raise Refused(
            f"{first_of(lost)} can't be seen with this configuration: another account's, or without a region.",
            hint="Configure the same account and all regions with machines, or end those machines first.",
        )


def check_in_turn(
    backend: Backend, expected: Mapping[str, str], install_id: str, pause: Callable[[float], None]
) -> None:
    """The same for somebody who waits for the answer: if the account may make no more calls for a few seconds, because
    a sweep or another check has just made some, it is checked after that."""
    left = TURNS
    while True:
        try:
            return check(backend, expected, install_id)
        except Throttled as early:
            if early.retry_after > left:
                raise
            left -= max(early.retry_after, 0.1)
            pause(early.retry_after)
