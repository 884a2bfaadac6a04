"""What happens to volumes at every provider: how a disk is described, which machine gets it, and what prevents that."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.domain.instances import Handle
from chalicelib.domain.volumes import Device, ProviderDisk
from chalicelib.errors import BackendError, Gone, InUse, NotYet, Unfit

log = logging.getLogger(__name__)

B = TypeVar("B")
VM = "vm"  # the kind of a machine's handle


def disk(handle: Handle, state: str, gib: int, users: Mapping[str, Device | None], **more: object) -> ProviderDisk:
    """`state`: without regard to its users. `users`: by the ids in machines' handles; None: the machine doesn't show it
    yet. `more`: other fields of the description."""
    return ProviderDisk.model_validate(
        {
            "handle": handle,
            "state": "in_use" if users and state == "available" else state,
            "size_gib": gib,
            "attached_to": tuple((user, device) for user, device in sorted(users.items()) if device is not None),
            "attaching_to": tuple(user for user, device in sorted(users.items()) if device is None),
            **more,
        }
    )


def machine_of(handles: Sequence[Handle]) -> Handle:
    """The machine that gets a volume, or has one."""
    for handle in handles:
        if handle.kind == VM:
            return handle
    raise Unfit("The machine has no handle, so nothing can be attached to it.")


def running(
    name: str,
    body: B | None,
    state_of: Callable[[B], str],
    starting: Collection[str],
    ready: Collection[str],
    *,
    is_fresh: bool = False,
) -> B:
    """The machine, if something can be attached to it: not while it is starting, and not once it has ended. None: there
    is no such machine, or it doesn't show yet if it `is_fresh`."""
    if body is None:
        if is_fresh:
            raise NotYet(f"The machine {name} doesn't show yet.")
        raise Unfit(f"There is no machine {name}.")
    state = state_of(body)
    if state in starting:
        raise NotYet(f"The machine {name} is still starting.")
    if state not in ready:
        raise Unfit(f"The machine {name} is {state}.")
    return body


def check_unused(name: str, users: Collection[str]) -> None:
    if users:
        raise InUse(f"Volume {name} is attached to {', '.join(sorted(users))}.")


def check_place(name: str, region: str, zone: str, found: Handle) -> None:
    """A volume that exists is registered where it is, or not at all."""
    there = found.data.get("region", ""), found.data.get("zone", "")
    if there[0] != region or zone not in ("", there[1]):
        raise Gone(f"Volume {name} isn't in {zone or region}: it is in {there[1] or there[0]}.")


class DiskPrices:
    """A month of disks. A price that isn't known is remembered like any other, so that no volume waits for it again and
    again."""

    def __init__(self, now: Now, ask: Callable[[str, str, int], float | None]) -> None:
        """`ask`: by the disk's type, its place, which is its region as a rule, and its GiB."""
        self._ask, self._known = ask, LookupCache[float | None](now)

    def of(self, kind: str, place: str, gib: int) -> float | None:
        return self._known.get(f"{kind} {place} {gib}", lambda: self._asked(kind, place, gib))

    def _asked(self, kind: str, place: str, gib: int) -> float | None:
        try:
            month = self._ask(kind, place, gib)
        except BackendError as error:
            log.warning("the price of disks of type %s in %s isn't known: %s", kind, place, error)
            return None
        return None if month is None else round(month, 6)
