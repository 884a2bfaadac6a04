"""Where descriptions of machines come from: three calls for one machine, or three lists for any number of them.

Azure limits lists far more than single look-ups, and both by the minute. Lists are late, so what they lack is looked up
by its name, which isn't.
"""

from __future__ import annotations

from typing import Protocol

from chalicelib.backends.azure.client import AzureClient
from chalicelib.backends.azure.places import Body, properties


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
        subscription, group = f"/subscriptions/{ids.subscription}", ids.in_group()
        machines = client.listed(f"{subscription}/providers/Microsoft.Compute/virtualMachines", {"statusOnly": "true"})
        self._machines = {str(each["id"]).lower(): each for each in machines if _has_power(each)}
        self._cards: dict[str, Body] = {}
        self._addresses: dict[str, Body] = {}
        if self._machines:
            for card in client.listed(f"{group}/providers/Microsoft.Network/networkInterfaces"):
                holder = (properties(card).get("virtualMachine") or {}).get("id", "")
                self._cards[str(holder).lower()] = card
            for address in client.listed(f"{group}/providers/Microsoft.Network/publicIPAddresses"):
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


def _has_power(body: Body) -> bool:
    view = properties(body).get("instanceView") or {}
    return any(str(each.get("code", "")).lower() == "powerstate/running" for each in view.get("statuses") or ())
