"""Google's operations: what became of a call that was accepted.

A list of them tells of a machine that isn't there (any more) why that is so, and of one that isn't listed yet that it
will be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.backends.gcp.client import GcpClients
from chalicelib.backends.gcp.errors import Body, failed
from chalicelib.backends.gcp.places import instant, last
from chalicelib.backends.kit.visibility import Lag
from chalicelib.errors import BackendError, Transient

PREEMPTED = "compute.instances.preempted"
WAIT = 25.0  # seconds, in which Google mostly shows that there is no room
_WHY = {
    PREEMPTED: "Google has taken it back",
    "compute.instances.hostError": "its host has failed",
    "compute.instances.guestTerminate": "it has shut itself down",
    "compute.instances.terminateOnHostMaintenance": "its host was maintained",
    "stop": "somebody has stopped it",
    "delete": "it was deleted",
}


@dataclass(frozen=True)
class History:
    """What has happened to a resource, the newest first."""

    name: str
    operations: Sequence[Body]
    lag: Lag

    def insertion(self) -> Body | None:
        return next((each for each in self.operations if each.get("operationType") in ("insert", "bulkInsert")), None)

    def refused(self, action: str) -> BackendError | None:
        """Why it wasn't created after all."""
        insertion = self.insertion()
        return failed(insertion, action) if insertion else None

    @property
    def is_preempted(self) -> bool:
        return any(each.get("operationType") == PREEMPTED for each in self.operations)

    @property
    def may_show_later(self) -> bool:
        """Is it so new that Google may not show it yet?"""
        newest = self.operations[0] if self.operations else {}
        if newest.get("operationType") not in ("insert", "bulkInsert") or newest.get("error"):
            return False
        return newest["status"] != "DONE" or self.lag.is_within(instant(newest.get("endTime", "")))

    def check_settled(self) -> None:
        """Raises Transient if it may show later."""
        if self.may_show_later:
            raise Transient(f"Google doesn't show {self.name} yet.")

    def why(self) -> str:
        """Why it isn't there any more; empty: nobody knows."""
        kinds = [str(each.get("operationType", "")) for each in self.operations]
        return next((_WHY[kind] for kind in kinds if kind in _WHY), "")


def history(clients: GcpClients, zone: str, collection: str, name: str) -> History:
    """Of a zone's resource, by the address of what operations are about: its name isn't used again."""
    of = f'targetLink eq ".*/zones/{zone}/{collection}/{name}"'
    found = clients.pages("zoneOperations.list", zone=zone, filter=of)
    newest_first = sorted(found, key=lambda each: instant(each.get("insertTime", "")), reverse=True)
    return History(name, newest_first, clients.lag)


def carried_out(clients: GcpClients, method: str, **parameters: Any) -> None:
    """Calls, and raises why its operation failed, too."""
    operation = _waited_for(clients, clients.call(method, **parameters))
    if error := failed(operation, f"compute.{method}"):
        raise error


def settled(clients: GcpClients, operation: Body) -> Body:
    """The operation once it is done, or as it is after a while. The call that began it was accepted: whatever fails
    here changes nothing about that."""
    try:
        return _waited_for(clients, operation)
    except BackendError:
        return operation


def _waited_for(clients: GcpClients, operation: Body) -> Body:
    if operation.get("status") == "DONE":
        return operation
    where: dict[str, Any] = {scope: last(operation[scope]) for scope in ("zone", "region") if scope in operation}
    method = f"{next(iter(where), 'global')}Operations.wait"
    return clients.call(method, operation=operation["name"], timeout=WAIT, **where)
