"""Machines, each with a boot disk of its own that is created and deleted with it.

A creation is repeated under the same key and name, and so finds what the first one made. It may fail after Nebius has
accepted it: the machine stops, or never shows, and only the operations of its id say why. They also tell a machine that
isn't listed yet from one that is gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.groups import group_of
from chalicelib.backends.kit.owners import owned
from chalicelib.backends.kit.regions import listed_everywhere, outcomes
from chalicelib.backends.kit.scripts import secrets_of
from chalicelib.backends.kit.visibility import CREATED
from chalicelib.backends.nebius.client import NebiusClient, idempotency_key
from chalicelib.backends.nebius.config import NebiusBackendConfig
from chalicelib.backends.nebius.errors import NOT_READY, OF_MANY, of_status
from chalicelib.backends.nebius.labels import marks_of
from chalicelib.backends.nebius.launch import specification
from chalicelib.backends.nebius.named import Named
from chalicelib.backends.nebius.network import NebiusNetworks
from chalicelib.backends.nebius.operations import CLUSTERS, History, Operations, failure
from chalicelib.backends.nebius.places import Places
from chalicelib.backends.nebius.reservations import policy, reservations
from chalicelib.backends.spi import CreateRequest, Machine, Owned
from chalicelib.domain.instances import Handle
from chalicelib.errors import (
    BackendError,
    Gone,
    InsufficientCapacity,
    MissingPermission,
    NotYet,
    QuotaExceeded,
    Transient,
    Unfit,
)

INSTANCES, DISKS = "compute.v1.InstanceService", "compute.v1.DiskService"
ENDED = ("STOPPING", "STOPPED", "DELETING", "ERROR")
STARTING = ("CREATING", "STARTING", "UPDATING")
LASTING = (QuotaExceeded, Unfit, MissingPermission)  # why a creation failed; after other errors, elsewhere one may work
AT_ONCE = 12  # operations looked up at the same time

Body = Mapping[str, Any]


class NebiusMachines:
    def __init__(
        self,
        client: NebiusClient,
        config: NebiusBackendConfig,
        places: Places,
        networks: NebiusNetworks,
        now: Now,
    ) -> None:
        self._client, self._tags, self._places, self._networks = client, config.tags, places, networks
        self._named = Named(client, places, config.tags)
        self._operations = Operations(client, now)

    # --- create ------------------------------------------------------------------------------------------------------

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        region = request.offer.region
        try:
            made = self._named.made(
                INSTANCES,
                "machine",
                request,
                region,
                lambda: self._specification(request),
                key=idempotency_key(request.token, "instance"),
                what=request.offer.instance.name,
                secrets=secrets_of(request),
            )
        except Unfit as error:
            self._places.forget()  # the subnet or a group may be another by now
            self._networks.forget()
            self._check_group(request, error)
            raise
        yield _handle("vm", made.id, region, made.at)

    def _check_group(self, request: CreateRequest, error: Unfit) -> None:
        """Why a machine was refused: Gone if its group is, and NotYet if that isn't ready."""
        group = group_of(request)
        if group is None:
            return
        found = self._client.call(CLUSTERS, "Get", {"id": group.id}, region=request.offer.region, what=group.id)
        if error.provider_code in NOT_READY and found.get("status", {}).get("reconciling"):
            raise NotYet(f"The GPU cluster {group.id} isn't ready.") from error

    def _specification(self, request: CreateRequest) -> Body:
        region, install = request.offer.region, dict(request.tags)["dstack-install"]
        groups = self._networks.groups(region, install, request.open_ports)
        reserved = policy(request, reservations(self._client, self._places) if request.reservation else ())
        return specification(request, self._places.subnet(region).id, groups, self._tags, reserved)

    # --- describe ----------------------------------------------------------------------------------------------------

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        handles = {handle.id: handle for several in machines for handle in several if handle.kind == "vm"}
        ids = sorted(each for each, handle in handles.items() if self._operations.is_possible(INSTANCES, handle))
        bodies = self._described(ids)
        for each in handles.keys() - ids:  # it would spoil the call for the others
            (bodies[each],) = outcomes([handles[each]], lambda handle: self._operations.found(INSTANCES, handle))
        unclear = [
            each
            for each, body in bodies.items()
            if not isinstance(body, BackendError) and state_of(body) not in ("RUNNING", "DELETING")
        ]
        histories = dict(zip(unclear, self._histories(unclear), strict=True))
        return outcomes(machines, lambda handles: self._machine(handles, bodies, histories))

    def _described(self, ids: Sequence[str]) -> dict[str, Body | BackendError]:
        """An empty body stands for a machine that isn't there, which no other error proves."""
        if not ids:
            return {}
        found = self._client.call(INSTANCES, "BatchGet", {"instance_ids": ids}, meanings=OF_MANY).get("items", {})
        return {each: _result(each, found.get(each)) for each in ids}

    def _histories(self, ids: Sequence[str]) -> Sequence[History | BackendError]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = pool.map(lambda each: outcomes([Handle(kind="vm", id=each)], self._operations.of), ids)
            return [one for (one,) in found]

    def _machine(
        self,
        handles: Sequence[Handle],
        bodies: Mapping[str, Body | BackendError],
        histories: Mapping[str, History | BackendError],
    ) -> Machine:
        vm = next((handle for handle in handles if handle.kind == "vm"), None)
        if vm is None:
            raise Gone("No machine was created.")
        body = bodies.get(vm.id, {})
        if isinstance(body, BackendError):
            raise body
        state, interface = state_of(body), _interface(body)
        if state == "RUNNING":
            internal = _address(interface, "ip_address")
            running = bool(internal and _address(interface, "public_ip_address"))
            return Machine("running" if running else "pending", _address(interface, "public_ip_address"), internal)
        history = histories.get(vm.id, ())
        if isinstance(history, BackendError):
            raise history
        failed = failure(history, vm) if state != "UPDATING" else None  # which only follows a creation that went well
        if failed is not None:
            refused = type(failed) if isinstance(failed, LASTING) else InsufficientCapacity
            raise Gone(f"{vm.id} was never there: {failed.message}", refused=refused)
        if not body:
            self._operations.check_settled(vm, history)
            raise Gone(f"Nebius doesn't know {vm.id}.")
        if state not in ENDED:  # it starts, or is in a state that is new
            return Machine("pending")
        if state in ("STOPPING", "STOPPED") and "preemptible" in body["spec"]:
            raise Gone(f"Nebius has taken the preemptible machine {vm.id} back: it is {state}.")
        raise Gone(f"{vm.id} is {state}.")

    # --- terminate ---------------------------------------------------------------------------------------------------

    def terminate(self, handle: Handle) -> None:
        services = {"vm": INSTANCES, "disk": DISKS}
        if handle.kind not in services:
            raise Gone(f"Nebius has no {handle.kind} of ours.")
        service, region = services[handle.kind], handle.data.get("region", "")
        body = self._operations.found(service, handle)
        if state_of(body) != "DELETING":
            with contextlib.suppress(NotYet):  # another operation is under way, such as its creation
                self._client.started(service, "Delete", {"id": handle.id}, region=region, what=handle.id)

    # --- what is ours ------------------------------------------------------------------------------------------------

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        regions = (region,) if region else self._places.regions()
        return listed_everywhere(regions, lambda region: self._owned(region, instance_id))

    def _owned(self, region: str, only: str | None) -> Iterator[Owned]:
        """Machines, and boot disks that were left without theirs. The disks are listed first: so the machine of a new
        one is listed, too."""
        disks = self._places.listed(DISKS, region)
        machines = {each["metadata"]["id"]: each for each in self._places.listed(INSTANCES, region)}
        for body in machines.values():
            yield from _owner("vm", body, region, only)
        for body in disks:
            status = body.get("status", {})
            if machines.keys().isdisjoint((status.get("managed_by"), status.get("read_write_attachment"))):
                yield from _owner("disk", body, region, only)


def _result(vm: str, given: Body | None) -> Body | BackendError:
    """What a call about several says of one."""
    if given is None:
        return Transient(f"Nebius's answer lacks {vm}.")
    error = of_status(given.get("error", {}), f"{INSTANCES}.BatchGet of {vm}", meanings=None)
    if error is not None and not isinstance(error, Gone):
        return error
    found: Body = given.get("instance", {})
    return found


def _owner(kind: str, body: Body, region: str, only: str | None) -> Iterator[Owned]:
    metadata = body["metadata"]
    handle = _handle(kind, str(metadata["id"]), region, str(metadata.get("created_at", "")))
    yield from owned(handle, *marks_of(body), only=only)


def _handle(kind: str, identity: str, region: str, created: str) -> Handle:
    """To the second: a resource and its creation may differ in a fraction."""
    at = {CREATED: f"{created[:19]}Z"} if created else {}
    return Handle(kind=kind, id=identity, data={"region": region, **at})


def state_of(body: Body) -> str:
    return str(body.get("status", {}).get("state", ""))


def _interface(body: Body) -> Body:
    interfaces: Sequence[Body] = body.get("status", {}).get("network_interfaces", ())
    return interfaces[0] if interfaces else {}


def _address(interface: Body, which: str) -> str:
    """It comes with the length of its prefix."""
    return str(interface.get(which, {}).get("address", "")).partition("/")[0]
