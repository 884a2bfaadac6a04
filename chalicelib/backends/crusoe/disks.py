"""Persistent disks: the data disks of machines, and volumes. They are billed with or without a machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from chalicelib.backends.crusoe.client import DISKS, Body, CrusoeClient, failure_in
from chalicelib.backends.crusoe.facts import FACTS
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.handles import located
from chalicelib.backends.kit.visibility import check_settled
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import MINUTE, from_iso
from chalicelib.errors import Gone, InUse, NotYet

PERSISTENT = "persistent-ssd"  # the type; `shared-volume` is a network file system
SETTLED = 10 * MINUTE  # after which a disk isn't asked about any more whether it is still being made


class CrusoeDisks:
    def __init__(self, client: CrusoeClient, now: Now) -> None:
        self._client, self._now = client, now

    def made(self, name: str, gib: int, region: str, kind: str) -> Handle:
        """By its name, what an earlier call made: the one that is attached, or else the oldest. Deletes any other. If
        its creation has failed already, `body` says why."""
        named = self._client.named(DISKS, name, **_wanted(region, disk_names=name))
        named.sort(key=lambda each: not each["attached_to"])
        for other in named[1:]:  # of a creation whose answer was lost, and which was listed late
            if not other["attached_to"]:
                with suppress(Gone):
                    self.delete(other)
        if named:
            return handle_of(named[0], kind)
        body = {"name": name, "size": f"{gib}GiB", "location": region, "type": PERSISTENT}
        operation = self._client.call("POST", *DISKS, body=body, region=region)["operation"]
        identity = str(operation["metadata"].get("id") or "")
        if not identity and (error := failure_in(operation, f"creating the disk {name}")) is not None:
            raise error
        return located(kind, identity, region, created=operation["started_at"])

    def ready(self, handle: Handle) -> Body:
        """The disk, which can be attached. Raises NotYet while it is being made."""
        body = self.body(handle)
        if self.is_being_made(body):
            raise NotYet(f"Crusoe is still making the disk {handle.id}.")
        return body

    def body(self, handle: Handle) -> Body:
        """Raises Gone, with the reason if it couldn't be made."""
        body = self._client.found(DISKS, handle.id, disk_ids=handle.id)
        if body is not None:
            return body
        for operation in self._client.operations(DISKS, handle.id)[:1]:
            if (error := failure_in(operation, f"creating the disk {handle.id}")) is not None:
                raise Gone(error.message, refused=type(error))
        check_settled([handle], self._now(), FACTS.visibility_lag, "Crusoe")
        raise Gone(f"Crusoe has no disk {handle.id}.")

    def is_being_made(self, body: Body) -> bool:
        """The disk itself has no state."""
        if body["attached_to"] or self._now() - from_iso(str(body["created_at"])) >= SETTLED:
            return False
        return any(each["state"] == "IN_PROGRESS" for each in self._client.operations(DISKS, str(body["id"]))[:1])

    def end(self, handle: Handle) -> None:
        body = self.body(handle)
        if users := ", ".join(str(each["vm_id"]) for each in body["attached_to"]):
            raise InUse(f"The disk {handle.id} is still attached to {users}.")
        self.delete(body)

    def delete(self, body: Body) -> None:
        self._client.call("DELETE", *DISKS, str(body["id"]))

    def listed(self, region: str = "") -> Iterator[Body]:
        """Those that aren't machines' own, which end with these."""
        return self._client.listed(DISKS, **_wanted(region))


def _wanted(region: str, **query: str) -> dict[str, str]:
    return {"exclude_os": "true", **({"location": region} if region else {}), **query}


def handle_of(body: Body, kind: str) -> Handle:
    return located(kind, body["id"], str(body["location"]), created=body["created_at"])


def gib_of(body: Body) -> int:
    size = str(body["size"])
    return int(size[:-3]) * (1024 if size.endswith("TiB") else 1)
