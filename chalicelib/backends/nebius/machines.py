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

from chalicelib.backends.kit.owners import REQUEST_TAG, all_tags, owned
from chalicelib.backends.kit.regions import everywhere, outcomes
from chalicelib.backends.kit.scripts import secrets_of
from chalicelib.backends.nebius.client import NebiusClient, idempotency_key
from chalicelib.backends.nebius.config import NebiusBackendConfig
from chalicelib.backends.nebius.errors import OF_CREATION
from chalicelib.backends.nebius.labels import labels_of
from chalicelib.backends.nebius.launch import specification
from chalicelib.backends.nebius.named import created_once
from chalicelib.backends.nebius.network import NebiusNetworks
from chalicelib.backends.nebius.operations import History, Operations, failure
from chalicelib.backends.nebius.places import Places
from chalicelib.backends.spi import CreateRequest, Machine, Owned
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import Micros
from chalicelib.errors import (
    BackendError,
    Gone,
    NotYet,
    Unfit,
)

INSTANCES, DISKS = "compute.v1.InstanceService", "compute.v1.DiskService"
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
        self._operations = Operations(client, now)

    # --- create ------------------------------------------------------------------------------------------------------

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        region = request.offer.region
        if request.reservation is not None:
            raise Unfit("Capacity block groups of Nebius can't be used yet.", hint="Leave out `reservation`.")
        in_group = request.placement_group is not None  # a group that isn't there is Gone
        meanings = {code: kind for code, kind in OF_CREATION.items() if not (in_group and "FOUND" in str(code).upper())}
        try:
            identity = created_once(
                self._client,
                INSTANCES,
                "machine",
                {
                    "parent_id": self._places.project(region),
                    "name": request.name,
                    "labels": labels_of(all_tags(request, self._config.tags)),
                },
                lambda: self._specification(request),
                lambda labels: labels.get(REQUEST_TAG) == request.token,
                region=region,
                key=idempotency_key(request.token, "instance"),
                what=request.offer.instance.name,
                meanings=meanings,
                secrets=secrets_of(request),
            )
        except Unfit:
            self._places.forget()  # the subnet or a group may be another by now
            self._networks.forget()
            raise
        yield _handle("vm", identity, region)

    def _specification(self, request: CreateRequest) -> Body:
        region, install = request.offer.region, dict(request.tags)["dstack-install"]
        groups = self._networks.groups(region, install, request.open_ports)
        return specification(request, self._places.subnet(region).id, groups, self._config.tags)

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
        histories = dict(zip(unclear, self._histories(unclear), strict=True))
        return outcomes(machines, lambda handles: self._machine(handles, bodies, histories))

    def _histories(self, ids: Sequence[str]) -> Sequence[History | BackendError]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = pool.map(lambda each: outcomes([Handle(kind="vm", id=each)], self._operations.of), ids)
            return [one for (one,) in found]

    def _machine(
        self,
        handles: Sequence[Handle],
        bodies: Mapping[str, Body],
        histories: Mapping[str, History | BackendError],
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
        failed = failure(history, vm)
        if failed is not None:
            raise Gone(f"{vm.id} was never there: {failed.message}", refused=type(failed))
        if state in STARTING:
            return Machine("pending")
        if not body:
            self._operations.check_settled(vm, history)
            raise Gone(f"Nebius doesn't know {vm.id}.")
        if state in ("STOPPING", "STOPPED") and "preemptible" in body["spec"]:
            raise Gone(f"Nebius has taken the preemptible machine {vm.id} back: it is {state}.")
        raise Gone(f"{vm.id} is {state}.")

    # --- terminate ---------------------------------------------------------------------------------------------------

    def terminate(self, handle: Handle) -> None:
        services = {"vm": INSTANCES, "disk": DISKS}
        if handle.kind not in services:
            raise Gone(f"Nebius has no {handle.kind} of ours.")
        service, region = services[handle.kind], handle.data.get("region", "")
        try:
            body = self._client.call(service, "Get", {"id": handle.id}, region=region, what=handle.id)
        except Gone:
            self._operations.check_gone(handle)
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
