"""Machines, each with a boot disk of its own that is created and deleted with it.

A creation is repeated under the same key and name, and so finds what the first one made. It may fail after Nebius has
accepted it: the machine stops, or never shows, and only the operations of its id say why. They also tell a machine that
isn't listed yet from one that is gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from chalicelib.backends.kit.owners import REQUEST_TAG, owned
from chalicelib.backends.kit.regions import everywhere, outcomes
from chalicelib.backends.kit.scripts import secrets_of
from chalicelib.backends.nebius.client import NebiusClient, idempotency_key
from chalicelib.backends.nebius.config import NebiusBackendConfig
from chalicelib.backends.nebius.errors import OF_CREATION, of_operation
from chalicelib.backends.nebius.facts import FACTS
from chalicelib.backends.nebius.launch import launch
from chalicelib.backends.nebius.network import NebiusNetworks
from chalicelib.backends.nebius.places import Places
from chalicelib.backends.spi import CreateRequest, Machine, Owned
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import Micros, from_iso
from chalicelib.errors import (
    AlreadyThere,
    BackendError,
    Gone,
    NotYet,
    Transient,
    Unfit,
)

INSTANCES, DISKS, OPERATIONS = "compute.v1.InstanceService", "compute.v1.DiskService", "common.v1.OperationService"
STARTING = ("CREATING", "STARTING", "UPDATING")
AT_ONCE = 12  # operations looked up at the same time

Body = Mapping[str, Any]


class NebiusMachines:
    def __init__(
        self,
        client: NebiusClient,
        config: NebiusBackendConfig,
        places: Places,
        networks: NebiusNetworks,
        now: Callable[[], Micros],
    ) -> None:
        self._client, self._config, self._places, self._networks = client, config, places, networks
        self._now = now

    # --- create ------------------------------------------------------------------------------------------------------

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        region = request.offer.region
        if request.reservation is not None:
            raise Unfit("Capacity block groups of Nebius can't be used yet.", hint="Leave out `reservation`.")
        existing = self._existing(request)
        yield _handle("vm", existing or self._created(request), region)

    def _existing(self, request: CreateRequest) -> str:
        """The id of what an earlier call made; empty if there is nothing."""
        region = request.offer.region
        named = {"parent_id": self._places.project(region), "name": request.name}
        try:
            found = self._client.call(INSTANCES, "GetByName", named, region=region, what=request.name)
        except Gone:
            return ""
        if found["metadata"].get("labels", {}).get(REQUEST_TAG) != request.token:
            raise AlreadyThere(f"{region} has a machine {request.name} that isn't ours.")
        return str(found["metadata"]["id"])

    def _created(self, request: CreateRequest) -> str:
        region, install = request.offer.region, dict(request.tags)["dstack-install"]
        groups = self._networks.groups(region, install, request.open_ports)
        subnet = self._places.subnet(region).id
        body = launch(request, self._places.project(region), subnet, groups, self._config.tags)
        in_group = request.placement_group is not None  # a group that isn't there is Gone
        meanings = {code: kind for code, kind in OF_CREATION.items() if not (in_group and "FOUND" in str(code).upper())}
        try:
            operation = self._client.started(
                INSTANCES,
                "Create",
                body,
                region=region,
                what=request.offer.instance.name,
                key=idempotency_key(request.token, "instance"),
                meanings=meanings,
                secrets=secrets_of(request),
            )
        except AlreadyThere:
            if existing := self._existing(request):
                return existing
            raise Transient(f"{region} has a machine {request.name}, and doesn't show it yet.") from None
        except Unfit:
            self._places.forget()  # the subnet or a group may be another by now
            self._networks.forget()
            raise
        return str(operation["resource_id"])

    # --- describe ----------------------------------------------------------------------------------------------------

    def describe(self, handles: Sequence[Handle]) -> Machine:
        (found,) = self.describe_several([handles])
        if isinstance(found, BackendError):
            raise found
        return found

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        ids = sorted({handle.id for handles in machines for handle in handles if handle.kind == "vm"})
        found = self._client.call(INSTANCES, "BatchGet", {"instance_ids": ids})["items"] if ids else {}
        bodies = {each: found.get(each, {}).get("instance", {}) for each in ids}
        unclear = [each for each in ids if _state(bodies[each]) not in ("RUNNING", "DELETING")]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            histories = dict(zip(unclear, pool.map(self._history, unclear), strict=True))
        return outcomes(machines, lambda handles: self._machine(handles, bodies, histories))

    def _machine(
        self,
        handles: Sequence[Handle],
        bodies: Mapping[str, Body],
        histories: Mapping[str, Sequence[Body] | BackendError],
    ) -> Machine:
        vm = next((handle for handle in handles if handle.kind == "vm"), None)
        if vm is None:
            raise Gone("No machine was created.")
        body = bodies[vm.id]
        state, interface = _state(body), _interface(body)
        if state == "RUNNING":
            internal = _address(interface, "ip_address")
            running = bool(internal and _address(interface, "public_ip_address"))
            return Machine("running" if running else "pending", _address(interface, "public_ip_address"), internal)
        history = histories.get(vm.id, ())
        if isinstance(history, BackendError):
            raise history
        failed = _failed(history, vm)
        if failed is not None:
            raise Gone(f"{vm.id} was never there: {failed.message}", refused=type(failed))
        if state in STARTING:
            return Machine("pending")
        if not body:
            self._check_settled(vm, history)
            raise Gone(f"Nebius doesn't know {vm.id}.")
        if state in ("STOPPING", "STOPPED") and "preemptible" in body["spec"]:
            raise Gone(f"Nebius has taken the preemptible machine {vm.id} back: it is {state}.")
        raise Gone(f"{vm.id} is {state}.")

    def _history(self, vm_id: str) -> Sequence[Body] | BackendError:
        """The operations of a machine, the first first."""
        try:
            listed = list(self._client.listed(OPERATIONS, {"resource_id": vm_id}, items="operations"))
        except Gone:
            return ()
        except BackendError as error:
            return error
        return sorted(listed, key=lambda each: from_iso(each["created_at"]))

    def _check_settled(self, handle: Handle, history: Sequence[Body]) -> None:
        """Raises Transient if it may be there although it doesn't show."""
        begun = from_iso(history[0]["created_at"]) if history else 0
        if history and ("status" not in history[0] or self._now() - begun < FACTS.visibility_lag):
            raise Transient(f"Nebius doesn't show {handle.id} yet.")

    # --- terminate ---------------------------------------------------------------------------------------------------

    def terminate(self, handle: Handle) -> None:
        services = {"vm": INSTANCES, "disk": DISKS}
        if handle.kind not in services:
            raise Gone(f"Nebius has no {handle.kind} of ours.")
        service, region = services[handle.kind], handle.data.get("region", "")
        try:
            body = self._client.call(service, "Get", {"id": handle.id}, region=region, what=handle.id)
        except Gone:
            history = self._history(handle.id)
            if isinstance(history, BackendError):
                raise history from None
            if not history or _failed(history, handle) is None:
                self._check_settled(handle, history)
            raise
        except Unfit as error:  # an id that Nebius could never have given
            raise Gone(f"Nebius has no {handle.id}.") from error
        if _state(body) != "DELETING":
            with contextlib.suppress(NotYet):  # another operation is under way, such as its creation
                self._client.started(service, "Delete", {"id": handle.id}, region=region, what=handle.id)

    # --- what is ours ------------------------------------------------------------------------------------------------

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        regions = (region,) if region else tuple(self._places.projects())
        for found in everywhere(regions, lambda each: list(self._owned(each))):
            yield from (one for one in found if instance_id in (None, one.instance_id))

    def _owned(self, region: str) -> Iterator[Owned]:
        """Machines, and boot disks that were left without theirs. The disks are listed first: so the machine of a new
        one is listed, too."""
        parent = {"parent_id": self._places.project(region)}
        disks = list(self._client.listed(DISKS, parent, region=region))
        machines = {each["metadata"]["id"]: each for each in self._client.listed(INSTANCES, parent, region=region)}
        for body in machines.values():
            yield from _owner("vm", body, region)
        for body in disks:
            status = body.get("status", {})
            if machines.keys().isdisjoint((status.get("managed_by"), status.get("read_write_attachment"))):
                yield from _owner("disk", body, region)


def _owner(kind: str, body: Body, region: str) -> Iterator[Owned]:
    metadata = body["metadata"]
    handle = _handle(kind, str(metadata["id"]), region)
    yield from owned(handle, metadata.get("labels", {}), str(metadata.get("name", "")))


def _handle(kind: str, identity: str, region: str) -> Handle:
    return Handle(kind=kind, id=identity, data={"region": region})


def _state(body: Body) -> str:
    return str(body.get("status", {}).get("state", ""))


def _interface(body: Body) -> Body:
    interfaces: Sequence[Body] = body.get("status", {}).get("network_interfaces", ())
    return interfaces[0] if interfaces else {}


def _address(interface: Body, which: str) -> str:
    """It comes with the length of its prefix."""
    return str(interface.get(which, {}).get("address", "")).partition("/")[0]


def _failed(history: Sequence[Body], handle: Handle) -> BackendError | None:
    """Why its creation failed; None if it didn't, or hasn't yet."""
    if not history:
        return None
    return of_operation(history[0].get("status", {}), f"creating {handle.id}", handle.data.get("region", ""))
