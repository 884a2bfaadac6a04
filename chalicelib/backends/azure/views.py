"""What Azure says of machines: whether they run, and if they failed, why.

Descriptions come from three calls for one machine, or from three lists for any number of them. Azure limits lists far
more than single look-ups, and both by the minute. Lists are late, so what they lack is looked up by its name, which
isn't.
"""

from __future__ import annotations

from typing import Protocol

from chalicelib.backends.azure.client import AzureClient
from chalicelib.backends.azure.errors import refused_late
from chalicelib.backends.azure.places import ADDRESS, NIC, Body, properties
from chalicelib.backends.kit.errors import cleaned
from chalicelib.errors import BackendError, Gone, InsufficientCapacity

POWER, FAILED = "PowerState/", "ProvisioningState/failed"
STOPPED = ("stopping", "stopped", "deallocating", "deallocated")  # a stopped one is still billed


class View(Protocol):
    def machine(self, path: str) -> Body | None:
        """With its states; None if there is none."""

    def card(self, machine: str, body: Body) -> Body | None: ...

    def address(self, path: str) -> Body | None: ...


class Alone:
    def __init__(self, client: AzureClient) -> None:
        self._client = client

    def machine(self, path: str) -> Body | None:
        return self._client.find(path, {"$expand": "instanceView"})

    def card(self, machine: str, body: Body) -> Body | None:
        cards = (properties(body).get("networkProfile") or {}).get("networkInterfaces") or ()
        return self._client.find(str(cards[0]["id"])) if cards else None

    def address(self, path: str) -> Body | None:
        return self._client.find(path)


class Listed:
    def __init__(self, client: AzureClient) -> None:
        self._alone, ids = Alone(client), client.ids
        path = f"/subscriptions/{ids.subscription}/providers/Microsoft.Compute/virtualMachines"
        machines = client.listed(path, {"statusOnly": "true"})
        self._machines = {str(each["id"]).lower(): each for each in machines if _power(each) == "running"}
        self._cards: dict[str, Body] = {}
        self._addresses: dict[str, Body] = {}
        if self._machines:
            for card in client.in_group(NIC):
                holder = (properties(card).get("virtualMachine") or {}).get("id", "")
                self._cards[str(holder).lower()] = card
            for address in client.in_group(ADDRESS):
                self._addresses[str(address["id"]).lower()] = address

    def machine(self, path: str) -> Body | None:
        """One that isn't running is looked up: only that says why it isn't."""
        return self._machines.get(path.lower()) or self._alone.machine(path)

    def card(self, machine: str, body: Body) -> Body | None:
        if (found := self._cards.get(machine.lower())) is not None:
            return found
        whole = self._alone.machine(machine)
        return None if whole is None else self._alone.card(machine, whole)

    def address(self, path: str) -> Body | None:
        found = self._addresses.get(path.lower())
        return found if found is not None and properties(found).get("ipAddress") else self._alone.address(path)


def is_running(body: Body, name: str) -> bool:
    """Does it run? False: not yet. Raises Gone if it never will."""
    state, power = str(properties(body).get("provisioningState", "")).lower(), _power(body)
    if state == "deleting":
        if is_spot(body):
            raise Gone(f"{name} is being deleted: Azure takes spot machines back.", refused=InsufficientCapacity)
        raise Gone(f"{name} is being deleted.")
    if power == "running":
        return True
    if state == "failed":
        text, refused = failure(body)
        size = (properties(body).get("hardwareProfile") or {}).get("vmSize", "machine")
        raise Gone(f"Azure couldn't create {name}, a {size}: {text}", refused=refused)
    if power in STOPPED:
        why = "Azure has taken it back" if is_spot(body) else "somebody has stopped it"
        raise Gone(f"{name} is {power}: {why}.", refused=InsufficientCapacity if is_spot(body) else None)
    return False


def failure(body: Body) -> tuple[str, type[BackendError] | None]:
    """Why its creation failed, and what a refusal at once would have been."""
    for status in _statuses(body):
        code = str(status.get("code", ""))
        if code.lower().startswith(FAILED.lower()):
            reason, message = code[len(FAILED) :].strip("/"), str(status.get("message") or "")
            return f"{reason or 'no code'}: {cleaned(message)}", refused_late(reason, message)
    return "it doesn't say why", None


def is_spot(body: Body) -> bool:
    return properties(body).get("priority") in ("Spot", "Low")


def _power(body: Body) -> str:
    codes = (str(status.get("code", "")) for status in _statuses(body))
    return next((code[len(POWER) :].lower() for code in codes if code.lower().startswith(POWER.lower())), "")


def _statuses(body: Body) -> list[Body]:
    view = properties(body).get("instanceView") or {}
    return list(view.get("statuses") or ())
