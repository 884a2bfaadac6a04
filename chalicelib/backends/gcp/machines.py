"""Machines of Compute Engine.

A launch is tried in one zone after another. First, the machine's name is looked up in all zones, because a request's id
is known in its zone only. Google accepts a launch before it knows whether there is room, so its operation is waited for
at Google, a moment; what takes longer shows when the machine is described, and so does a machine that was accepted and
has vanished: the zone's operations say why.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

from chalicelib.backends.gcp.client import GcpClients
from chalicelib.backends.gcp.config import GCPBackendConfig
from chalicelib.backends.gcp.errors import Body, elsewhere, failed, refused_launch
from chalicelib.backends.gcp.images import GcpImages
from chalicelib.backends.gcp.launch import GcpPlace, launch, request_id
from chalicelib.backends.gcp.network import GcpNetworks
from chalicelib.backends.gcp.operations import History, history, settled
from chalicelib.backends.gcp.places import GcpPlaces, handle_of, instant, last, region_of, zone_of
from chalicelib.backends.gcp.reservations import WARNING, GcpReservations
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.owners import owned
from chalicelib.backends.kit.regions import by_region, outcomes
from chalicelib.backends.kit.scripts import secrets_of
from chalicelib.backends.kit.visibility import check_time
from chalicelib.backends.kit.zones import first_with_room
from chalicelib.backends.spi import CreateRequest, Machine, Owned
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import HOUR, MINUTE, Micros
from chalicelib.errors import BackendError, Gone, InsufficientCapacity, NotYet, Unfit

INSERT = "compute.instances.insert"
STARTING = ("PENDING", "PROVISIONING", "STAGING")
RUNNING = ("RUNNING", "REPAIRING")
ENDING = ("DEPROVISIONING", "PENDING_STOP", "STOPPING", "SUSPENDING")
PREPARING: Micros = MINUTE  # at most; the rest of half of `create_timeout` is for the first launch
ANNOUNCED: Micros = HOUR  # before a host is maintained


class GcpMachines:
    def __init__(
        self,
        clients: GcpClients,
        config: GCPBackendConfig,
        places: GcpPlaces,
        networks: GcpNetworks,
        now: Now,
    ) -> None:
        self._clients, self._config, self._now = clients, config, now
        self._places, self._networks = places, networks
        self._images, self._reservations = GcpImages(clients, config, now), GcpReservations(clients, now)

    # --- create ------------------------------------------------------------------------------------------------------

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        begun = self._now()
        yield self._launched(request) or (yield from self._launch(request, begun))

    def _launched(self, request: CreateRequest) -> Handle | None:
        for body in self._clients.made("instances", "machine", request, request.offer.region):
            if body["status"] not in ENDING:
                return handle_of("vm", body["name"], last(body["zone"]), body.get("creationTimestamp"))
        return None

    def _launch(self, request: CreateRequest, begun: Micros) -> Generator[Handle, None, Handle]:
        def in_zone(place: GcpPlace) -> Handle:
            accepted = self._insert(request, place)
            return handle_of("vm", request.name, place.zone, accepted.get("insertTime"))

        try:
            places = self._zones(request)
            check_time(begun, self._now(), PREPARING, "Google")
            return (yield from first_with_room(request, places, in_zone, elsewhere))
        except Gone:  # of the placement group: what a zone lacks is Unfit
            raise
        except BackendError as error:
            if error.provider_code in ("notFound", "RESOURCE_NOT_FOUND"):
                self._networks.forget()  # what is cached may be gone
            raise

    def _insert(self, request: CreateRequest, place: GcpPlace) -> Body:
        """The operation that was accepted."""
        spot, secrets = request.offer.instance.resources.spot, secrets_of(request)
        body = launch(request, place, self._config)
        try:
            operation = self._clients.call(
                "instances.insert",
                zone=place.zone,
                body=body,
                requestId=request_id(request.token, place.zone),
                secrets=secrets,
            )
        except BackendError as error:
            raise self._refused(error, request, spot=spot) from None
        wrong = failed(settled(self._clients, operation), INSERT, secrets)
        if wrong is not None:
            raise self._refused(wrong, request, spot=spot)
        return operation

    def _refused(self, error: BackendError, request: CreateRequest, *, spot: bool) -> BackendError:
        group = request.placement_group
        if group is not None and isinstance(error, Gone) and f"resourcePolicies/{group.id}" in str(error):
            return error
        return refused_launch(error, spot=spot)

    def _zones(self, request: CreateRequest) -> list[GcpPlace]:
        """Every allowed place, in the order of the offer's zones."""
        region = request.offer.region
        subnet = self._networks.subnet(region)
        allowed = request.zones or request.offer.availability_zones or self._places.zones(region)
        zones = [zone for zone in allowed if region_of(zone) == region]
        if not zones:
            raise Unfit(f"{region} has no zone for {request.offer.instance.name} among {', '.join(allowed) or 'none'}.")
        reserved = None
        if request.reservation is not None:
            reserved = self._reservations.named(request.reservation, request.offer.instance.name, zones)
            zones = [reserved.zone]
        tags = tuple(self._networks.tags(dict(request.tags)["dstack-install"], request.open_ports))
        fabric, name = self._networks.fabric(region), request.offer.instance.name
        image = self._images.of(name)
        in_cluster = request.placement_group is not None
        return [
            GcpPlace(zone, subnet, tags, image, reserved, tuple(fabric.cards(name, zone, in_cluster=in_cluster)))
            for zone in zones
        ]

    # --- describe ----------------------------------------------------------------------------------------------------

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        return by_region(machines, _zone_of, self._in_zone)

    def _in_zone(self, zone: str, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        names = [handle.id for handles in machines for handle in handles if handle.kind == "vm"]
        known = self._described(zone, names)
        return outcomes(machines, lambda handles: self._machine(handles, known))

    def _described(self, zone: str, names: Sequence[str]) -> Mapping[str, Body]:
        """One call for several. It proves nothing about a machine that it lacks."""
        if len(names) < 2:
            return {}
        listed = self._clients.pages("instances.list", zone=zone, filter="labels.dstack-install:*")
        return {str(body["name"]): body for body in listed}

    def _found(self, handle: Handle) -> Body | None:
        return self._clients.find("instances.get", zone=_zone_of([handle]), instance=handle.id)

    def _machine(self, handles: Sequence[Handle], known: Mapping[str, Body]) -> Machine:
        reasons: list[Gone] = []
        for handle in handles:
            if handle.kind == "vm":
                try:
                    return self._shown(handle, known.get(handle.id) or self._found(handle))
                except Gone as gone:
                    reasons.append(gone)
        kinds = {gone.refused for gone in reasons}
        why = "; ".join(gone.message for gone in reasons) or "No machine was launched."
        raise Gone(why, refused=kinds.pop() if len(kinds) == 1 else None)

    def _shown(self, handle: Handle, body: Body | None) -> Machine:
        status = str(body["status"]) if body else ""
        if body and status in STARTING:
            return Machine("pending")
        if body and status in RUNNING:
            for at, early, message in _announced(body):
                if at - self._now() < early:
                    return _running(body, True, at, message)
            return _running(body, False, None, "")
        past = history(self._clients, _zone_of([handle]), "instances", handle.id)
        if error := past.refused(INSERT):
            refused = refused_launch(error, spot=True)  # it fitted, or it wouldn't have been accepted
            raise Gone(refused.message, refused=type(refused))
        if body and status in ENDING and past.is_preempted:
            return _running(body, True, None, "Google takes it back")
        if body is None:
            self._prove_gone(handle, past)
        state = f"is {status}" if status else "isn't there"
        taken = InsufficientCapacity if past.is_preempted else None  # it may have been so before it ever ran
        raise Gone(": ".join(filter(None, (f"{handle.id} {state}", past.why()))), refused=taken)

    def _prove_gone(self, handle: Handle, past: History) -> None:
        """Operations are listed with a delay, too."""
        self._clients.lag.check_settled([handle])
        past.check_settled()

    # --- terminate ---------------------------------------------------------------------------------------------------

    def terminate(self, handle: Handle) -> None:
        ends: Mapping[str, Callable[[Handle, str], None]] = {"vm": self._end_vm, "disk": self._end_disk}
        if handle.kind not in ends:
            raise Gone(f"Google has no {handle.kind} of ours.")
        ends[handle.kind](handle, _zone_of([handle]))

    def _end_vm(self, handle: Handle, zone: str) -> None:
        try:
            self._clients.call("instances.delete", zone=zone, instance=handle.id)
        except NotYet:
            return  # it is being deleted, or it is still being created, and the next call deletes it
        except Gone:
            self._prove_gone(handle, history(self._clients, zone, "instances", handle.id))
            raise

    def _end_disk(self, handle: Handle, zone: str) -> None:
        self._clients.call("disks.delete", zone=zone, disk=handle.id)

    # --- what is ours ------------------------------------------------------------------------------------------------

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        """Boot disks are deleted with their machine, so only those that were left behind are listed."""
        of = "labels.dstack-instance:*" if instance_id is None else f'labels.dstack-instance = "{instance_id}"'
        for kind, collection in (("vm", "instances"), ("disk", "disks")):
            for body in self._clients.pages(f"{collection}.aggregatedList", within=region, filter=of):
                name, zone = str(body["name"]), last(body["zone"])
                handle = handle_of(kind, name, zone, body.get("creationTimestamp") if kind == "vm" else None)
                if region in ("", handle.data["region"]) and not body.get("users"):
                    yield from owned(handle, body.get("labels", {}))


def _zone_of(handles: Sequence[Handle]) -> str:
    """The zone of a machine and everything that belongs to it."""
    of = next((handle for handle in handles if handle.kind == "vm"), handles[0] if handles else None)
    return "none" if of is None else zone_of(of)


def _running(body: Body, interrupted: bool, reclaim_at: Micros | None, message: str) -> Machine:
    nic: Body = next(iter(body.get("networkInterfaces", ())), {})
    internal = str(nic.get("networkIP", ""))
    public = next((str(each["natIP"]) for each in nic.get("accessConfigs", ()) if each.get("natIP")), "")
    return Machine("running", public or internal, internal, interrupted, reclaim_at, message)


def _announced(body: Body) -> Iterator[tuple[Micros, Micros, str]]:
    """When it will end, how long before that its job is told, and why."""
    of, plan = body.get("resourceStatus", {}), body.get("scheduling", {})
    if ends := of.get("scheduling", {}).get("terminationTimestamp"):
        yield instant(str(ends)), WARNING, "its reservation ends"
    maintained = of.get("upcomingMaintenance", {}).get("windowStartTime")
    if maintained and plan.get("onHostMaintenance") == "TERMINATE":
        yield instant(str(maintained)), ANNOUNCED, "Google maintains its host"
