"""TPUs: each slice is a queued resource with one node, which is one host or several.

Google puts a request into a queue, where it would wait for room for ever. Ours leaves it after some minutes, and then
it has failed for lack of capacity. Whatever failed, expired, or was taken back counts against quotas until it is
deleted, and so the engine's end of a machine deletes the queued resource by force, with its node.

A host's start-up script runs with each start. That of the agent can do that: it only starts the agent again. All hosts
of a slice get the same script, which asks the metadata service for the host's number.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.backends.gcp.config import GCPBackendConfig
from chalicelib.backends.gcp.errors import Body
from chalicelib.backends.gcp.facts import FACTS
from chalicelib.backends.gcp.launch import MOST_USER_DATA, SCOPE
from chalicelib.backends.gcp.network import GcpNetworks
from chalicelib.backends.gcp.places import RULE, instant, last, region_of, zone_of
from chalicelib.backends.gcp.tpu_client import NOT_HERE, REQUESTED, TpuClient, failed
from chalicelib.backends.gcp.tpu_types import DISK_GIB, hosts_of, of_tpu, runtime_of, tpu_type
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.owners import REQUEST_TAG, all_tags, labels, owned
from chalicelib.backends.kit.regions import by_region, everywhere, outcomes
from chalicelib.backends.kit.scripts import secrets_of, user_data
from chalicelib.backends.kit.visibility import if_there
from chalicelib.backends.kit.zones import first_with_room, zone_token
from chalicelib.backends.spi import CreateRequest, Machine, Owned
from chalicelib.domain.bundles import worker
from chalicelib.domain.instances import Handle
from chalicelib.errors import AlreadyThere, BackendError, Gone, InsufficientCapacity, NotYet, Transient, Unfit

QUEUED, NODES = "queuedResources", "nodes"
CREATE = "tpu.queuedResources.create"
NUMBER = (  # of the host in its slice
    "curl -fsS --retry 10 -H 'Metadata-Flavor: Google' "
    "http://metadata.google.internal/computeMetadata/v1/instance/attributes/agent-worker-number"
)
IN_QUEUE = "300s"  # then Google gives the request up
WAITING = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING")
STARTING = ("CREATING", "STARTING", "RESTARTING", "REIMAGING")
RUNNING = ("READY", "REPAIRING")
# A host always has an account, and its containers reach the metadata service, which gives its tokens away: these
# can do no more than write logs and metrics.
LEAST_SCOPES = (
    "https://www.googleapis.com/auth/logging.write",
    "https://www.googleapis.com/auth/monitoring.write",
)


@dataclass(frozen=True)
class _Zone:
    zone: str


class GcpTpus:
    def __init__(self, client: TpuClient, config: GCPBackendConfig, networks: GcpNetworks, now: Now) -> None:
        self._client, self._config, self._networks, self._now = client, config, networks, now

    def check(self) -> None:
        """Raises MissingPermission."""
        self._client.check()

    # --- create ------------------------------------------------------------------------------------------------------

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        zones = self._zones(request)
        found = next(filter(None, (self._made(request, zone) for zone in zones)), None)
        if found is None:
            node = self._node(request)
            found = yield from first_with_room(
                request,
                [_Zone(zone) for zone in zones],
                lambda place: self._queue(request, place.zone, node),
                _elsewhere,
            )
        yield found

    def _zones(self, request: CreateRequest) -> list[str]:
        name, region = request.offer.instance.name, request.offer.region
        kind = tpu_type(name)
        if kind is None:
            raise Unfit(f"Google has no TPU {name[:40]!r} that can be bought here.")
        if kind.hosts != max(1, len(request.bundle)):
            raise Unfit(f"{name} has {kind.hosts} hosts, and {max(1, len(request.bundle))} are asked for.")
        if request.reservation is not None:
            raise Unfit("TPUs can't be bought from a reservation.", hint="Remove `reservation`.")
        if request.disk_mib > DISK_GIB * 1024:
            raise Unfit(f"A TPU's host has a disk of {DISK_GIB} GB.", hint="Ask for no larger `disk`.")
        if request.open_ports and not self._config.public_ips:
            raise Unfit(f"{request.name} is a gateway's, which needs a public address: remove `public_ips: false`.")
        allowed = request.zones or request.offer.availability_zones or ()
        zones = [zone for zone in allowed if region_of(zone) == region]
        if not zones:
            raise Unfit(f"{region} has no zone for {name} among {', '.join(allowed) or 'none'}.")
        return zones

    def _made(self, request: CreateRequest, zone: str) -> Handle | None:
        try:
            body = self._client.call("GET", zone, QUEUED, request.name)
        except Gone:
            return None
        except BackendError as error:
            if error.provider_code == NOT_HERE:
                return None
            raise
        if _labels(body).get(REQUEST_TAG) != request.token:
            raise AlreadyThere(f"{zone} has a queued resource {request.name} that isn't ours.")
        if _state(body) == "DELETING":
            raise NotYet(f"{request.name} of {zone} is being deleted.")
        return _handle(body)

    def _queue(self, request: CreateRequest, zone: str, node: Body) -> Handle:
        name, secrets = request.name, secrets_of(request)
        body: dict[str, Any] = {
            "tpu": {
                "nodeSpec": [
                    {"parent": f"projects/{self._config.project_id}/locations/{zone}", "nodeId": name, "node": node}
                ]
            },
            "queueingPolicy": {"validUntilDuration": IN_QUEUE},
        }
        if request.offer.instance.resources.spot:
            body["spot"] = {}
        operation = self._client.call(
            "POST",
            zone,
            QUEUED,
            query={
                "queuedResourceId": name,
                "requestId": str(uuid.uuid5(uuid.NAMESPACE_OID, zone_token(request.token, zone))),
            },
            body=body,
            meanings=REQUESTED,
            secrets=secrets,
        )
        if wrong := failed(operation.get("error", {}), CREATE, zone, secrets):
            raise wrong
        return _at(name, zone, request.offer.instance.name)

    def _node(self, request: CreateRequest) -> Body:
        name, account = request.offer.instance.name, self._config.vm_service_account
        rights = {"email": account, "scope": [SCOPE]} if account else {"scope": list(LEAST_SCOPES)}
        return {
            "acceleratorType": name,
            "runtimeVersion": runtime_of(name),
            "networkConfig": {
                "network": self._networks.path,
                "subnetwork": self._networks.subnet(request.offer.region),
                "enableExternalIps": self._config.public_ips,
            },
            "tags": self._networks.tags(dict(request.tags)["dstack-install"], request.open_ports),
            "labels": labels(all_tags(request, self._config.tags), RULE, "Google"),
            "metadata": {"startup-script": user_data(request, MOST_USER_DATA, "Google", NUMBER)},
            "serviceAccount": rights,
        }

    # --- describe ----------------------------------------------------------------------------------------------------

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        slices = [next(handle for handle in handles if of_tpu(handle)) for handles in machines]
        return by_region(slices, zone_of, self._in_zone)

    def _in_zone(self, zone: str, slices: Sequence[Handle]) -> Sequence[Machine | BackendError]:
        if len(slices) == 1:
            return outcomes(slices, lambda handle: self._machine(handle, self._one(handle, QUEUED), None))
        queued, nodes = (self._all(zone, collection) for collection in (QUEUED, NODES))
        return outcomes(slices, lambda handle: self._machine(handle, queued.get(handle.id), nodes))

    def _one(self, handle: Handle, collection: str) -> Body | None:
        return if_there(lambda: self._client.call("GET", zone_of(handle), collection, handle.id))

    def _all(self, zone: str, collection: str) -> Mapping[str, Body]:
        return {last(str(each["name"])): each for each in self._client.listed(zone, collection)}

    def _machine(self, handle: Handle, queued: Body | None, nodes: Mapping[str, Body] | None) -> Machine:
        if queued is None:
            raise self._absent(handle)
        state = _state(queued)
        if state in WAITING:
            return Machine("pending")
        if state == "FAILED":
            error = failed(queued["state"].get("failedData", {}).get("error", {}), CREATE, zone_of(handle))
            error = error or InsufficientCapacity(f"There was no room for {handle.id} in {zone_of(handle)} in time.")
            raise Gone(error.message, refused=type(error))
        if state == "SUSPENDING" and _is_googles(queued):
            return Machine("running", interrupted=True, message="Google takes it back")
        if state != "ACTIVE":
            taken = state == "SUSPENDED" and _is_googles(queued)
            raise Gone(f"{handle.id} is {state}{': Google has taken it back' if taken else ''}")
        node = self._one(handle, NODES) if nodes is None else nodes.get(handle.id)
        return self._of_node(handle, node)

    def _of_node(self, handle: Handle, node: Body | None) -> Machine:
        state = str(node.get("state", "")) if node else ""
        if node is None or state not in (*STARTING, *RUNNING, "PREEMPTED"):
            why = f": {node['healthDescription']}" if node and node.get("healthDescription") else ""
            raise Gone(f"The node of {handle.id} {f'is {state}' if node else 'is no longer there'}{why}")
        if state in STARTING:
            return Machine("pending")
        endpoints = node.get("networkEndpoints", ())
        if state == "READY" and endpoints and len(endpoints) != hosts_of(handle):
            text = f"{handle.id} has {len(endpoints)} hosts, and {hosts_of(handle)} were expected"
            raise Gone(text, refused=Unfit)
        endpoint: Body = endpoints[worker(handle)] if worker(handle) < len(endpoints) else {}
        internal = str(endpoint.get("ipAddress", ""))
        public = str(endpoint.get("accessConfig", {}).get("externalIp", ""))
        taken = state == "PREEMPTED"
        return Machine(
            "running", public or internal, internal, interrupted=taken, message="Google takes it back" if taken else ""
        )

    def _absent(self, handle: Handle) -> BackendError:
        """Why it isn't there, as Google's operations have it."""
        zone, about = zone_of(handle), f"/{QUEUED}/{handle.id}"
        past = [
            each
            for each in self._client.listed(zone, "operations")
            if str(each.get("metadata", {}).get("target", "")).endswith(about)
        ]
        made = [each for each in past if each["metadata"].get("verb") == "create"]
        if made and len(made) == len(past):  # nobody has deleted it
            operation = made[0]
            if error := failed(operation.get("error", {}), CREATE, zone):
                return Gone(error.message, refused=type(error))
            ended = instant(str(operation["metadata"].get("endTime", "")))
            if not operation.get("done") or self._now() - ended < FACTS.visibility_lag:
                return Transient(f"Google doesn't show {handle.id} yet.")
        return Gone(f"{handle.id} isn't there")

    # --- terminate ---------------------------------------------------------------------------------------------------

    def terminate(self, handle: Handle) -> None:
        queued = self._one(handle, QUEUED)
        if queued is not None:
            if _state(queued) != "DELETING":
                self._delete(handle, QUEUED, force="true")
            return
        node = self._one(handle, NODES)  # it outlives a queued resource that somebody else has deleted
        if node is None:
            raise self._absent(handle)
        if node.get("state") != "DELETING":
            self._delete(handle, NODES)

    def _delete(self, handle: Handle, collection: str, **query: str) -> None:
        try:
            self._client.call("DELETE", zone_of(handle), collection, handle.id, query=query)
        except NotYet:  # it is just being created, or suspended; the next call deletes it
            return

    # --- what is ours ------------------------------------------------------------------------------------------------

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        """Nodes whose queued resource is gone, too. Google can't filter these lists."""
        zones = self._client.locations(region)
        for found in everywhere(zones, self._owned) if zones else ():
            yield from (each for each in found if instance_id in (None, each.instance_id))

    def _owned(self, zone: str) -> list[Owned]:
        found: dict[str, Body] = {}
        for collection in (QUEUED, NODES):
            for name, body in self._all(zone, collection).items():
                found.setdefault(name, body)
        return [each for body in found.values() for each in owned(_handle(body), _labels(body))]


def _elsewhere(error: BackendError) -> bool:
    return isinstance(error, InsufficientCapacity) or error.provider_code in (NOT_HERE, "NOT_FOUND")


def _spec(body: Body) -> Body:
    """The node of a queued resource; a node itself."""
    specs = body.get("tpu", {}).get("nodeSpec", ())
    return next((each.get("node", {}) for each in specs), body)


def _labels(body: Body) -> Mapping[str, str]:
    found: Mapping[str, str] = _spec(body).get("labels", {})
    return found


def _state(queued: Body) -> str:
    return str(queued.get("state", {}).get("state", ""))


def _is_googles(queued: Body) -> bool:
    """Has Google, and not somebody in the project, suspended it?"""
    return str(queued["state"].get("stateInitiator", "")) != "USER"


def _handle(body: Body) -> Handle:
    parts = str(body["name"]).split("/")
    return _at(parts[-1], parts[3], str(_spec(body).get("acceleratorType", "")))


def _at(name: str, zone: str, kind: str) -> Handle:
    return Handle(kind="vm", id=name, data={"region": region_of(zone), "zone": zone, "tpu": kind})
