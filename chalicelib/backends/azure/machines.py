"""Machines, each with the network card, address and disk that Azure makes along with it.

A machine's name is its owner's, and a creation is only accepted while nothing has that name; so a repeated one finds
the first. Azure looks for room after it has accepted a creation: its description says if there was none. What is
left of a failed machine then are its card, address and disk. They go with it as a rule; what doesn't is found in lists
by its name, and ended in the order in which each lets go of the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Generator, Iterator, Mapping, Sequence

from chalicelib.backends.azure.client import LATEST, AzureClient
from chalicelib.backends.azure.errors import elsewhere
from chalicelib.backends.azure.facts import FACTS, LISTS_LAST
from chalicelib.backends.azure.launch import AzurePlace, is_availability_set, launch
from chalicelib.backends.azure.network import AzureNetworks
from chalicelib.backends.azure.places import (
    ADDRESS,
    DISK,
    NIC,
    VM,
    Body,
    group_of,
    handle_of,
    name_of,
    owner_name,
    properties,
    region_of,
    tags_of,
)
from chalicelib.backends.azure.reservations import places_in, reservations
from chalicelib.backends.azure.views import Alone, Listed, View, is_running, is_spot
from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.owners import REQUEST_TAG, owned
from chalicelib.backends.kit.regions import outcomes, region_in
from chalicelib.backends.kit.scripts import secrets_of
from chalicelib.backends.kit.visibility import CREATED, check_settled, check_time
from chalicelib.backends.kit.zones import first_with_room
from chalicelib.backends.spi import CreateRequest, Machine, Owned
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import MINUTE, Micros, iso
from chalicelib.errors import AlreadyThere, BackendError, Gone, InsufficientCapacity, InUse, NotYet, Transient, Unfit

SHORT_FOR: Micros = 15 * MINUTE  # in which a zone that had no room is tried last
CHILDREN = (NIC, ADDRESS, DISK)  # each holds the next
HELD_BY: Mapping[str, str] = {NIC: "virtualMachine", ADDRESS: "ipConfiguration"}  # the property that says so
HOLDERS: Mapping[str, str] = {NIC: VM, ADDRESS: NIC, DISK: VM}
ENDING: Mapping[str | int, type[BackendError]] = dict.fromkeys(
    ("NicInUse", "PublicIPAddressCannotBeDeleted", "OperationNotAllowed", 409), NotYet
)
_STALE = ("InvalidResourceReference", "SubnetNotFound", "ResourceNotFound", "ResourceGroupNotFound")


class AzureMachines:
    def __init__(self, client: AzureClient, networks: AzureNetworks, now: Now) -> None:
        self._client, self._networks, self._now = client, networks, now
        self._ids, self._config = client.ids, client.config
        group, _, name = (client.config.vm_managed_identity or "").partition("/")
        self._identity = self._ids.of("identity", name, group) if name else ""
        self._short: dict[tuple[str, str], Micros] = {}  # types and zones that had no room, and until when they count
        self._lists: LookupCache[Sequence[Body]] = LookupCache(now, LISTS_LAST)

    # --- create ------------------------------------------------------------------------------------------------------

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        begun = self._now()
        path = self._ids.of(VM, request.name)
        found = self._client.find_ours(path, f"machine {request.name}", [(REQUEST_TAG, request.token)])
        handle = _vm(found or (yield from self._launch(request, begun)), path)
        # An answer without its time mustn't make a new machine look like one that is gone.
        yield handle.model_copy(update={"data": {**handle.data, CREATED: handle.data.get(CREATED, iso(self._now()))}})

    def _launch(self, request: CreateRequest, begun: Micros) -> Generator[Handle, None, Body]:
        if request.placement_group is not None:
            self._client.call("GET", request.placement_group.id, region=request.offer.region)  # raises Gone
        try:
            return (
                yield from first_with_room(request, self._places(request), self._in_zone(request, begun), elsewhere)
            )
        except BackendError as error:
            if error.provider_code in _STALE:
                self._networks.forget()
            raise

    def _places(self, request: CreateRequest) -> list[AzurePlace]:
        """Those that had no room lately come last. A region without zones is one place, and so is an availability
        set."""
        region = request.offer.region
        zones: Sequence[str] = request.zones or request.offer.availability_zones or ()
        group = request.placement_group
        if group is not None and is_availability_set(group):
            zones = ()
        reserved = ""
        if request.reservation is not None:
            reserved, zones = places_in(request, reservations(self._client))
        subnet, closed = self._networks.subnet(region), self._networks.group(region, request.open_ports)
        places = [AzurePlace(zone, subnet, closed, reserved) for zone in zones or ("",)]
        return sorted(places, key=lambda place: self._had_no_room(request.offer.instance.name, place.zone))

    def _had_no_room(self, size: str, zone: str) -> bool:
        return self._now() < self._short.get((size, zone), 0)

    def _in_zone(self, request: CreateRequest, begun: Micros) -> Callable[[AzurePlace], Body]:
        """`begun`: when the first place's step did. Each other place has a step of its own."""
        first = iter((begun,))

        def created(place: AzurePlace) -> Body:
            step = next(first, self._now())
            try:
                return self._put(request, place, step, {"If-None-Match": "*"})
            except AlreadyThere as error:
                if error.provider_code != "PreconditionFailed":
                    raise NotYet(f"Azure doesn't show the machine {request.name} yet: {error.message}") from error
            # Made by an earlier call whose answer was lost. While it doesn't show, the same request describes it.
            return self._client.find(self._ids.of(VM, request.name)) or self._put(request, place, step)

        return created

    def _put(
        self, request: CreateRequest, place: AzurePlace, step: Micros, condition: Mapping[str, str] | None = None
    ) -> Body:
        check_time(step, self._now(), LATEST, "Azure")
        no_group = Transient if self._config.resource_group is None else Unfit  # ours is made before
        try:
            body: Body = self._client.call(
                "PUT",
                self._ids.of(VM, request.name),
                body=launch(request, place, self._config, self._identity),
                headers=condition,
                region=place.zone or request.offer.region,
                secrets=secrets_of(request),
                meanings={"ResourceGroupNotFound": no_group, 404: Unfit},
            )
        except InsufficientCapacity:
            self._note_no_room(request.offer.instance.name, place.zone)
            raise
        return body

    def _note_no_room(self, size: str, zone: str) -> None:
        self._short[size, zone] = self._now() + SHORT_FOR

    # --- describe ----------------------------------------------------------------------------------------------------

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        view = Alone(self._client) if len(machines) == 1 else Listed(self._client)
        return outcomes(machines, lambda handles: self._described(handles, view))

    def _described(self, handles: Sequence[Handle], view: View) -> Machine:
        vms = [handle for handle in handles if handle.kind == VM]
        for handle in vms:
            path = self._ids.at(VM, handle.id)
            if (body := view.machine(path)) is not None:
                return self._machine(path, body, view, handle)
        check_settled(vms, self._now(), FACTS.visibility_lag, "Azure")
        names = " or ".join(name_of(handle.id) for handle in vms) or "of this instance"
        if any(handle.data.get("market") == "spot" for handle in vms):
            raise Gone(
                f"Azure has no machine {names} any more: it takes spot machines back.", refused=InsufficientCapacity
            )
        raise Gone(f"Azure has no machine {names}: somebody has deleted it.")

    def _machine(self, path: str, body: Body, view: View, handle: Handle) -> Machine:
        try:
            if not is_running(body, name_of(path)):
                return Machine("pending")
        except Gone as gone:
            if gone.refused is InsufficientCapacity:
                size = str((properties(body).get("hardwareProfile") or {}).get("vmSize", ""))
                self._note_no_room(size, handle.data.get("zone", ""))
            raise
        card = view.card(path, body)
        if card is None:
            raise Transient(f"Azure doesn't show the network card of {name_of(path)} yet.")
        inside = properties((properties(card).get("ipConfigurations") or [{}])[0])
        internal = str(inside.get("privateIPAddress") or "")
        public = (inside.get("publicIPAddress") or {}).get("id")
        address = view.address(str(public)) if public else None
        shown = str(properties(address or {}).get("ipAddress") or "")
        if public and not shown:
            return Machine("pending")
        return Machine("running", shown or internal, internal)

    # --- terminate ---------------------------------------------------------------------------------------------------

    def terminate(self, handle: Handle) -> None:
        if handle.kind not in (VM, *CHILDREN):
            raise Gone(f"Azure has no {handle.kind} of ours.")
        path = self._ids.at(handle.kind, handle.id)
        body = self._client.find(path)
        if handle.kind != VM:
            if body is None:
                raise Gone(f"{name_of(path)} is deleted.")
            self._delete(path, handle)
        elif body is None or not self._ends(path, body, handle):
            check_settled([handle], self._now(), FACTS.visibility_lag, "Azure")
            self._end_leftovers(handle, name_of(path))

    def _ends(self, path: str, body: Body, handle: Handle) -> bool:
        """False: the machine is gone by now."""
        if str(properties(body).get("provisioningState", "")).lower() == "deleting":
            return True
        volumes = (properties(body).get("storageProfile") or {}).get("dataDisks")
        try:
            self._delete(path, handle, {} if volumes else {"forceDeletion": "true"})  # what is written may be lost then
        except Gone:
            return False
        return True

    def _delete(self, path: str, handle: Handle, query: Mapping[str, str] | None = None) -> None:
        self._client.call("DELETE", path, query=query, region=region_in(handle), meanings=ENDING)

    def _end_leftovers(self, handle: Handle, name: str) -> None:
        """Ends what a machine that is gone has left behind. Raises Gone if that is nothing."""
        held: BackendError | None = None
        found = False
        for kind in CHILDREN:
            for body in self._shared_list(kind):
                if owner_name(str(body["name"])) != name or _is_volume(kind, body):
                    continue
                found = True
                try:
                    self._delete(self._ids.of(kind, str(body["name"])), handle)
                except Gone:
                    continue
                except (NotYet, InUse) as error:
                    held = held or error
        if held is not None:
            raise NotYet(f"The machine {name} is gone, and something of it not yet: {held.message}")
        if not found:
            raise Gone(f"{name} is deleted, with all that belonged to it.")

    # --- what is ours ------------------------------------------------------------------------------------------------

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        """Cards, addresses and disks are deleted with their machine, so only those that were left behind are listed."""
        there: set[str] = set()
        for kind in (VM, *CHILDREN):
            for body in self._client.in_group(kind) if instance_id is None else self._shared_list(kind):
                path = self._ids.of(kind, str(body["name"]).lower())
                there.add(path)
                if (region and region_of(body) != region) or self._is_held(kind, body, there):
                    continue
                handle = _vm(body, path) if kind == VM else Handle(kind=kind, id=path, data={"region": region_of(body)})
                yield from owned(handle, tags_of(body), owner_name(str(body["name"])), only=instance_id)

    def _is_held(self, kind: str, body: Body, there: Container[str]) -> bool:
        """Does what holds it exist? Azure may go on naming a machine that is gone. `there`: the ids that lists have
        shown; what they lack is looked up, because they are late."""
        for holder in _holders(kind, body):
            path = self._ids.of(HOLDERS[kind], name_of(holder))
            if group_of(holder) != self._ids.group.lower() or path in there or self._client.find(path) is not None:
                return True
        return False

    def _shared_list(self, kind: str) -> Sequence[Body]:
        """Many machines may end at the same time, and Azure limits lists by the minute."""
        return self._lists.get(kind, lambda: list(self._client.in_group(kind)))


def _vm(body: Body, path: str) -> Handle:
    return handle_of(VM, path, body, market="spot" if is_spot(body) else "")


def _holders(kind: str, body: Body) -> Iterator[str]:
    """The ids of the machines that have it, or of the card that has the address."""
    if kind == DISK:
        yield from (str(each) for each in (body.get("managedBy"), *(body.get("managedByExtended") or ())) if each)
    elif kind in HELD_BY and (holder := properties(body).get(HELD_BY[kind])):
        yield re.split("/ipConfigurations/", str(holder["id"]), flags=re.IGNORECASE)[0]


def _is_volume(kind: str, body: Body) -> bool:
    return kind == DISK and "dstack-volume" in tags_of(body)
