"""Machines on EC2, and their own public addresses, if they need one.

A launch is tried in one zone after another. First, existing machines are looked up by tag in all zones, because AWS's
own token is valid in one zone only. Until a launch is listed, it is found by the token of its zone, the one tried last.
AWS rejects a token that was used for another request (with a newer image, for instance), so nothing is launched twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from chalicelib.backends.aws import launch
from chalicelib.backends.aws.client import PAGE, Clients
from chalicelib.backends.aws.config import AWSBackendConfig
from chalicelib.backends.aws.errors import LATE, elsewhere
from chalicelib.backends.aws.images import AwsImages
from chalicelib.backends.aws.launch import LaunchPlace, LaunchSettings, Reservation
from chalicelib.backends.aws.network import Networks
from chalicelib.backends.aws.places import (
    SETTLED,
    Body,
    filters,
    regions_of,
    tag_filters,
    tagged,
    tags_of,
)
from chalicelib.backends.aws.reservations import WARNING, ends_at, group_of, is_block
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.owners import REQUEST_TAG, owned
from chalicelib.backends.kit.regions import by_region, listed_everywhere, outcomes
from chalicelib.backends.kit.visibility import CREATED, check_settled, is_fresh, stamp
from chalicelib.backends.kit.zones import first_with_room
from chalicelib.backends.spi import CreateRequest, Machine, Owned
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import Micros, iso
from chalicelib.errors import BackendError, Gone, MissingPermission, Transient, Unfit

ALIVE = ("pending", "running", "stopping", "stopped")  # a stopped one still costs money
_INSTANCE = re.compile(r"i-[0-9a-f]+")
RECLAIMED = ("marked-for-termination", "marked-for-stop")


class Machines:
    def __init__(
        self,
        clients: Clients,
        config: AWSBackendConfig,
        networks: Networks,
        images: AwsImages,
        now: Now,
    ) -> None:
        self._clients, self._networks, self._images, self._now = clients, networks, images, now
        self._regions = regions_of(config)
        self._settings = LaunchSettings(config.public_ips, config.iam_instance_profile, config.tags)

    # --- create ------------------------------------------------------------------------------------------------------

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        machine = self._launched(request)
        if launch.needs_address(request, public_ips=self._settings.public_ips):
            yield _address(self._allocated(request), request.offer.region)
        yield _vm(machine or (yield from self._launch(request)), request.offer.region)

    def _launched(self, request: CreateRequest) -> Body | None:
        alive = [*tag_filters({REQUEST_TAG: request.token}), *filters(instance_state_name=ALIVE)]
        return next(self._instances(request.offer.region, alive), None)

    def _launch(self, request: CreateRequest) -> Generator[Handle, None, Body]:
        def in_zone(place: LaunchPlace) -> Body:
            parameters = launch.launch(request, place, self._settings)
            answer = self._clients.call("ec2", request.offer.region, "run_instances", **parameters)
            machine: Body = answer["Instances"][0]
            return machine

        try:
            return (yield from first_with_room(request, self._places(request), in_zone, elsewhere))
        except BackendError as error:
            self._doubt(error)
            raise

    def _doubt(self, error: BackendError) -> None:
        """Drops cached subnets, groups and images, which may be gone. The next launch looks them up again."""
        if ".NotFound" in error.provider_code:
            self._networks.forget()
            self._images.forget()

    def _places(self, request: CreateRequest) -> list[LaunchPlace]:
        """Every allowed place, in the order of the offer's zones."""
        region = request.offer.region
        subnets = self._networks.of(region).subnets
        reservation = self._reservation(request)
        allowed = request.zones or request.offer.availability_zones or tuple(sorted(subnets))
        zones = [zone for zone in allowed if zone in subnets and (reservation is None or zone == reservation.zone)]
        if not zones:
            wanted = reservation.zone if reservation else ", ".join(allowed)
            raise Unfit(f"The VPC in {region} has no subnet for machines in {wanted}: it has some in {_list(subnets)}.")
        install = dict(request.tags)["dstack-install"]
        tags = self._settings.tags or {}
        groups: tuple[str, ...] = (self._networks.group(region, install, tags),)
        if request.open_ports:
            groups += (self._networks.door(region, install, tags, request.open_ports),)
        image = self._images.of(request.offer)
        return [LaunchPlace(zone, subnets[zone], groups, image, reservation) for zone in zones]

    def _reservation(self, request: CreateRequest) -> Reservation | None:
        if request.reservation is None:
            return None
        region, wanted = request.offer.region, request.offer.instance.name
        body = self._reserved(region, request.reservation)
        if body.get("State") != "active":
            state = body.get("State", "not there")
            raise Unfit(f"The capacity reservation {request.reservation} in {region} isn't active: it is {state}.")
        if body["InstanceType"] != wanted:
            raise Unfit(f"The capacity reservation {request.reservation} is for {body['InstanceType']}, not {wanted}.")
        end = ends_at(body)
        if end is not None and self._now() >= end - WARNING:
            raise Unfit(f"The capacity block {request.reservation} ends: AWS ends its machines at {iso(end)}.")
        return Reservation(
            body["CapacityReservationId"],
            body["AvailabilityZone"],
            is_block(body),
            body.get("Tenancy", "default"),
            group_of(body),
        )

    def _reserved(self, region: str, reservation: str) -> Body:
        """The reservation's present state; empty if there is none."""
        found = self._clients.call(
            "ec2", region, "describe_capacity_reservations", CapacityReservationIds=[reservation]
        )["CapacityReservations"]
        return found[0] if found else {}

    def _allocated(self, request: CreateRequest) -> Body:
        """Allocates the address. AWS accepts no token here, so a lost response may leave a second one; its tag releases
        it."""
        region = request.offer.region
        existing = self._clients.call(
            "ec2", region, "describe_addresses", Filters=tag_filters({REQUEST_TAG: request.token})
        )
        for address in sorted(existing["Addresses"], key=lambda each: str(each["AllocationId"])):
            return dict(address)
        tags = launch.owner_tags(request, self._settings)
        return self._clients.call(
            "ec2", region, "allocate_address", Domain="vpc", TagSpecifications=tagged(["elastic-ip"], tags)
        )

    # --- describe ----------------------------------------------------------------------------------------------------

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        return by_region(machines, self._region_of, self._in_region)

    def _in_region(self, region: str, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        bodies = self._described(region, [each for handles in machines for each in handles if each.kind == "vm"])
        announced = self._announced(region, bodies)
        return outcomes(machines, lambda handles: self._machine(region, handles, bodies, announced))

    def _machine(
        self,
        region: str,
        handles: Sequence[Handle],
        known: Mapping[str, Body],
        announced: Mapping[str, Micros | BackendError | None],
    ) -> Machine:
        vms = [handle for handle in handles if handle.kind == "vm"]
        bodies = {handle.id: known[handle.id] for handle in vms if handle.id in known}
        for handle in vms:
            body = bodies.get(handle.id)
            if body is None or body["State"]["Name"] not in ("pending", "running"):
                continue
            running = body["State"]["Name"] == "running"
            if running:
                body = self._addressed(body, handles, region)
            reclaim_at = announced.get(handle.id)
            if isinstance(reclaim_at, BackendError):
                raise reclaim_at
            return Machine(
                "running" if running else "pending",
                str(body.get("PublicIpAddress") or body.get("PrivateIpAddress") or ""),
                str(body.get("PrivateIpAddress") or ""),
                handle.id in announced,
                reclaim_at,
            )
        check_settled((handle for handle in vms if handle.id not in bodies), self._now(), SETTLED, "AWS")
        ended = (_ended(bodies[each.id]) if each.id in bodies else f"AWS doesn't know {each.id}" for each in vms)
        why = {LATE.get(body.get("StateReason", {}).get("Code", "")) for body in bodies.values()}
        raise Gone("; ".join(ended) or "No machine was launched.", refused=why.pop() if len(why) == 1 else None)

    def _described(self, region: str, vms: Sequence[Handle]) -> dict[str, Body]:
        """Describes with a filter, so that an unknown id doesn't fail the others."""
        listed = self._instances(region, filters(instance_id=[handle.id for handle in vms])) if vms else ()
        return {str(body["InstanceId"]): body for body in listed}

    def _addressed(self, body: Body, handles: Sequence[Handle], region: str) -> Body:
        """Gives a running machine the address that was allocated for it."""
        primary = _primary(body)
        address = next((handle for handle in handles if handle.kind == "address"), None)
        if address is None or primary is None or primary.get("Association", {}).get("PublicIp") == address.data["ip"]:
            return body
        try:
            self._clients.call(
                "ec2",
                region,
                "associate_address",
                AllocationId=address.id,
                NetworkInterfaceId=primary["NetworkInterfaceId"],
                AllowReassociation=False,
            )
        except Gone as error:  # the machine is there all the same
            raise Transient(f"The address {address.data['ip']} of {body['InstanceId']} isn't there: {error}") from error
        return {**body, "PublicIpAddress": address.data.get("ip", "")}

    def _announced(self, region: str, bodies: Mapping[str, Body]) -> Mapping[str, Micros | BackendError | None]:
        """The machines that AWS has announced to take back, and when, if it says so; and those of which it doesn't say
        whether it has."""
        spot: dict[str, str] = {}
        blocks: dict[str, list[str]] = {}
        for machine_id, body in bodies.items():
            if body["State"]["Name"] != "running":
                continue
            if body.get("InstanceLifecycle") == "capacity-block":
                blocks.setdefault(str(body["CapacityReservationId"]), []).append(machine_id)
            elif request := body.get("SpotInstanceRequestId"):
                spot[str(request)] = machine_id
        found: dict[str, Micros | BackendError | None] = {}
        try:
            found |= dict.fromkeys(spot[request] for request in self._reclaimed(region, list(spot)))
        except BackendError as error:
            found |= dict.fromkeys(spot.values(), error)
        for block, ids in blocks.items():
            try:
                end = ends_at(self._reserved(region, block))
            except BackendError as error:
                found |= dict.fromkeys(ids, error)
            else:
                if end is not None and self._now() >= end - WARNING:
                    found |= dict.fromkeys(ids, end)
        return found

    def _reclaimed(self, region: str, requests: Sequence[str]) -> list[str]:
        """Those of the spot requests whose machine AWS takes back."""
        if not requests:
            return []
        listed = self._clients.pages(
            "ec2",
            region,
            "describe_spot_instance_requests",
            "SpotInstanceRequests",
            Filters=filters(spot_instance_request_id=requests),
            MaxResults=PAGE,
        )
        return [each["SpotInstanceRequestId"] for each in listed if each.get("Status", {}).get("Code") in RECLAIMED]

    # --- terminate ---------------------------------------------------------------------------------------------------

    def terminate(self, handle: Handle) -> None:
        ends: Mapping[str, Callable[[Handle, str], None]] = {
            "vm": self._end_vm,
            "address": self._end_address,
            "disk": self._end_disk,
            "nic": self._end_nic,
        }
        if handle.kind not in ends:
            raise Gone(f"AWS has no {handle.kind} of ours.")
        ends[handle.kind](handle, self._region(handle))

    def _end_vm(self, handle: Handle, region: str) -> None:
        try:
            answer = self._clients.call("ec2", region, "terminate_instances", InstanceIds=[handle.id])
        except Unfit as error:
            if error.provider_code != "OperationNotPermitted":
                raise
            raise MissingPermission(
                f"{handle.id} in {region} is protected against termination; remove its protection, then it is ended."
            ) from error
        except Gone as error:
            self._prove_gone(handle, region, error)
            raise
        if all(each["CurrentState"]["Name"] == "terminated" for each in answer["TerminatingInstances"]):
            raise Gone(f"{handle.id} is terminated.")

    def _prove_gone(self, handle: Handle, region: str, error: Gone) -> None:
        """Proves that a machine is gone. A single call that doesn't find it proves nothing: AWS may not list it yet."""
        if error.provider_code != "InvalidInstanceID.Malformed" and _INSTANCE.fullmatch(handle.id):
            body = self._described(region, [handle]).get(handle.id)
            if is_fresh(handle, self._now(), SETTLED) if body is None else body["State"]["Name"] != "terminated":
                raise Transient(f"AWS doesn't find {handle.id} yet, so it may still be there.") from error

    def _end_address(self, handle: Handle, region: str) -> None:
        found = self._clients.call("ec2", region, "describe_addresses", Filters=filters(allocation_id=handle.id))
        for address in found["Addresses"]:
            if bound := address.get("AssociationId"):
                self._clients.call("ec2", region, "disassociate_address", AssociationId=bound)
        self._clients.call("ec2", region, "release_address", AllocationId=handle.id)

    def _end_disk(self, handle: Handle, region: str) -> None:
        self._clients.call("ec2", region, "delete_volume", VolumeId=handle.id)

    def _end_nic(self, handle: Handle, region: str) -> None:
        self._clients.call("ec2", region, "delete_network_interface", NetworkInterfaceId=handle.id)

    # --- what is ours ------------------------------------------------------------------------------------------------

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        regions = (region,) if region else self._regions
        return listed_everywhere(regions, lambda region: self._owned(region, instance_id))

    def _owned(self, region: str, instance_id: str | None) -> Iterator[Owned]:
        """Disks and network cards are deleted with their machine, so only those that were left behind are listed."""
        if instance_id is None:
            by_tag = filters(tag_key="dstack-instance")
        else:
            by_tag = tag_filters({"dstack-instance": instance_id})
        idle = [*by_tag, *filters(status="available")]
        for body in self._instances(region, [*by_tag, *filters(instance_state_name=[*ALIVE, "shutting-down"])]):
            yield from owned(_vm(body, region), tags_of(body))
        for body in self._clients.call("ec2", region, "describe_addresses", Filters=by_tag)["Addresses"]:
            yield from owned(_address(body, region), tags_of(body))
        for body in self._clients.pages("ec2", region, "describe_volumes", "Volumes", Filters=idle, MaxResults=PAGE):
            yield from owned(Handle(kind="disk", id=body["VolumeId"], data={"region": region}), tags_of(body))
        nics = self._clients.pages(
            "ec2", region, "describe_network_interfaces", "NetworkInterfaces", Filters=idle, MaxResults=PAGE
        )
        for body in nics:
            nic = Handle(kind="nic", id=body["NetworkInterfaceId"], data={"region": region})
            yield from owned(nic, tags_of({"Tags": body.get("TagSet", ())}))

    # --- reading -----------------------------------------------------------------------------------------------------

    def _instances(self, region: str, wanted: list[dict[str, Any]]) -> Iterator[Body]:
        pages = self._clients.pages(
            "ec2", region, "describe_instances", "Reservations", Filters=wanted, MaxResults=PAGE
        )
        for reservation in pages:
            yield from reservation["Instances"]

    def _region_of(self, handles: Sequence[Handle]) -> str:
        """The region of a machine and everything that belongs to it."""
        return next((self._region(handle) for handle in handles if handle.kind == "vm"), self._regions[0])

    def _region(self, handle: Handle) -> str:
        return handle.data.get("region") or self._regions[0]


def _vm(body: Body, region: str) -> Handle:
    data = {"region": region, "zone": str(body["Placement"]["AvailabilityZone"]), CREATED: stamp(body["LaunchTime"])}
    return Handle(kind="vm", id=str(body["InstanceId"]), data=data)


def _address(body: Body, region: str) -> Handle:
    return Handle(
        kind="address", id=str(body["AllocationId"]), data={"region": region, "ip": str(body.get("PublicIp", ""))}
    )


def _primary(body: Body) -> Body | None:
    for nic in body.get("NetworkInterfaces", ()):
        attachment = nic.get("Attachment", {})
        if attachment.get("DeviceIndex") == 0 and not attachment.get("NetworkCardIndex"):
            return dict(nic)
    return None


def _ended(body: Body) -> str:
    why = body.get("StateReason", {}).get("Message") or body.get("StateTransitionReason") or ""
    return f"{body['InstanceId']} is {body['State']['Name']}{': ' if why else ''}{why}"


def _list(names: Mapping[str, str]) -> str:
    return ", ".join(sorted(names))
