"""Machines, with what belongs to them: a partition of an InfiniBand network, and a data disk. All of these bear the
name of their instance, which says whose they are.

Crusoe accepts a creation before it looks for room. What it finds is the result of an operation, which is looked up once
the machine isn't listed, or is broken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from chalicelib.backends.crusoe.client import VMS, Body, CrusoeClient, state_of
from chalicelib.backends.crusoe.disks import CrusoeDisks, handle_of
from chalicelib.backends.crusoe.launch import data_disk, has_fabric, launch
from chalicelib.backends.crusoe.partitions import Partitions
from chalicelib.backends.crusoe.quotas import shown
from chalicelib.backends.kit.cache import SharedLookup
from chalicelib.backends.kit.groups import group_of
from chalicelib.backends.kit.handles import located
from chalicelib.backends.kit.owners import owned
from chalicelib.backends.kit.regions import outcomes
from chalicelib.backends.kit.scripts import secrets_of
from chalicelib.backends.kit.visibility import adopted
from chalicelib.backends.spi import CreateRequest, Machine, Owned
from chalicelib.domain.instances import Handle
from chalicelib.errors import BackendError, Gone, InUse, NotYet, QuotaExceeded

VM, DISK, PARTITION = "vm", "disk", "partition"  # kinds of handles
ENDING = ("DELETING", "DELETED")
STOPPED = ("STOPPING", "STOPPED", "SHUTOFF")
BROKEN = ("ERROR", "CRASHED", "BLOCKED", "POWER", "UNDEFINED")  # how the names of these states begin


class CrusoeMachines:
    def __init__(self, client: CrusoeClient, disks: CrusoeDisks, partitions: Partitions) -> None:
        self._client, self._disks, self._partitions = client, disks, partitions
        self._lists = SharedLookup[Sequence[tuple[Handle, str]]]()

    # --- create -------------------------------------------------------------------------------------------------------

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        """Adopts by its name what an earlier call created: the oldest machine, and ends any other. Raises NotYet while
        its data disk is being made."""
        partition, disk, group = "", None, group_of(request)
        if has_fabric(request.offer.instance.name):
            if group is None:
                group = self._partitions.made(request.name, request.offer, PARTITION)
                yield group
            else:
                self._partitions.check(group)
            partition = group.id
        if gib := data_disk(request):
            made = self._disks.made(request.name, gib, request.offer.region, DISK)
            yield made
            disk = self._ready(made)
        named = [_handle(body) for body in self._client.named(VMS, request.name, names=request.name)]
        yield from adopted(named or [self._launched(request, partition, disk)], self._end_vm)

    def _ready(self, handle: Handle) -> Body:
        try:
            return self._disks.ready(handle)
        except Gone as error:
            raise error.refused(error.message) if error.refused else error from None

    def _launched(self, request: CreateRequest, partition: str, disk: Body | None) -> Handle:
        name = request.offer.instance.name
        body = launch(request, partition, disk)
        secrets = (*secrets_of(request), body["startup_script"])
        try:
            return self._client.begun(VM, VMS, body, name, secrets=secrets, type=name)
        except QuotaExceeded as error:
            raise QuotaExceeded(f"{error.message}{shown(self._client, name)}") from None

    # --- describe -----------------------------------------------------------------------------------------------------

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        """One list for all."""
        ids = [handle.id for handles in machines for handle in handles if handle.kind == VM]
        known = {str(body["id"]): body for body in self._client.listed(VMS, ids=",".join(ids))} if ids else {}
        return outcomes(machines, lambda handles: self._machine(handles, known))

    def _machine(self, handles: Sequence[Handle], known: Mapping[str, Body]) -> Machine:
        wanted = [handle for handle in handles if handle.kind == VM]
        wanted.sort(key=lambda handle: handle.id in known and state_of(known[handle.id]) in ENDING)  # one too many
        if found := self._client.lag.first_shown(wanted, known, self._client.machine):
            return self._described(*found)
        for handle in wanted:
            self._check_creation(handle)
        raise self._client.lag.gone("machine", wanted)

    def _described(self, handle: Handle, body: Body) -> Machine:
        state = state_of(body)
        if state in ENDING:
            raise Gone(f"The machine {handle.id} is {state.lower()}.")
        if state in STOPPED:
            raise Gone(f"The machine {handle.id} is {state.lower()}: somebody has stopped it, or Crusoe has.")
        if state.startswith(BROKEN):
            self._check_creation(handle)
            raise Gone(f"The machine {handle.id} is broken: Crusoe calls its state {state.lower()}.")
        if state != "RUNNING":
            return Machine("pending")
        ips: Body = next((ip for card in body["network_interfaces"] for ip in card["ips"]), {})
        private = str((ips.get("private_ipv4") or {}).get("address") or "")
        return Machine("running", str((ips.get("public_ipv4") or {}).get("address") or private), private)

    def _check_creation(self, handle: Handle) -> None:
        self._client.check_creation(VMS, handle, handle.data.get("type", ""))

    # --- terminate ----------------------------------------------------------------------------------------------------

    def terminate(self, handle: Handle) -> None:
        ends = {VM: self._end_vm, DISK: self._disks.delete, PARTITION: self._partitions.delete}
        if handle.kind not in ends:
            raise Gone(f"Crusoe has no {handle.kind} of ours.")
        try:
            ends[handle.kind](handle)
        except InUse as error:  # by the machine, which is on its way out
            raise NotYet(error.message) from None

    def _end_vm(self, handle: Handle) -> None:
        body = self._client.machine(handle)
        if body is None:
            raise self._client.lag.gone("machine", [handle])
        if state_of(body) == "DELETED":
            raise Gone(f"The machine {handle.id} is deleted.")
        if state_of(body) != "DELETING":
            self._client.call("DELETE", *VMS, handle.id)

    # --- what is ours -------------------------------------------------------------------------------------------------

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        """No list can be asked for an instance's: many that end at the same time share one."""
        for handle, name in self._lists.get(region, lambda: list(self._named(region))):
            yield from owned(handle, {}, name, only=instance_id)

    def _named(self, region: str) -> Iterator[tuple[Handle, str]]:
        where = {"locations": region} if region else {}
        for body in self._client.listed(VMS, **where):
            if state_of(body) != "DELETED":
                yield _handle(body), str(body["name"])
        for body in self._disks.listed(region):
            yield handle_of(body, DISK), str(body["name"])
        yield from self._partitions.named(PARTITION, region)


def _handle(body: Body) -> Handle:
    return located(VM, body["id"], str(body["location"]), type=str(body["type"]), created=body["created_at"])
