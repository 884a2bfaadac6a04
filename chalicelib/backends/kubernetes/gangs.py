"""Pods that start together: the nodes of one task.

Each waits behind a second gate, which is opened for all of them by whichever call finds all there, and room for all of
them. So none holds what another needs while it waits. A headless service, which the first pod owns, gives each a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.owners import all_tags
from chalicelib.backends.kubernetes import pods
from chalicelib.backends.kubernetes.catalog import NODES, PODS, RUNNING
from chalicelib.backends.kubernetes.client import MERGE, Clusters
from chalicelib.backends.kubernetes.labels import labels_of
from chalicelib.backends.kubernetes.nodes import nodes_of
from chalicelib.backends.kubernetes.room import Room, is_queued, place_for, without_room
from chalicelib.backends.spi import CreateRequest, GangMember
from chalicelib.domain.instants import SECOND, iso
from chalicelib.errors import AlreadyThere, BackendError, Gone, InsufficientCapacity, NotYet, Transient

Body = Mapping[str, Any]
OPENED_WITHIN = 40 * SECOND  # by one call; the next goes on
CHANGED_OFTEN = 3  # times that a pod may be changed by others while it is decided where all go


class Gangs:
    def __init__(self, clusters: Clusters, now: Now) -> None:
        self._clusters, self._now = clusters, now

    def add_service(self, request: CreateRequest, gang: GangMember, owner: Body) -> None:
        """One of an earlier pod goes with that, so it is replaced."""
        region, body = request.offer.region, service(request, gang, owner)
        path = self._path(region, "services")
        try:
            self._clusters.call(region, "POST", path, body=body)
        except AlreadyThere:
            if not self._removed(region, (*path, body["metadata"]["name"]), owner):
                return
            self._clusters.call(region, "POST", path, body=body)

    def _removed(self, region: str, path: Sequence[str], owner: Body) -> bool:
        """Is the service gone? It stays if it is the one of `owner`."""
        try:
            metadata = self._clusters.call(region, "GET", path)["metadata"]
            if owner["metadata"]["uid"] in [each["uid"] for each in metadata.get("ownerReferences", ())]:
                return False
            options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": metadata["uid"]}}
            self._clusters.call(region, "DELETE", path, body=options, meanings={"Conflict": Gone})
        except Gone:
            pass
        return True

    def start(self, region: str, gang: GangMember) -> None:
        """Opens the gates of all, if all are there. Raises InsufficientCapacity if there is no room for them."""
        for attempt in range(CHANGED_OFTEN):
            try:
                return self._start(region, gang)
            except NotYet:
                if attempt == CHANGED_OFTEN - 1:
                    raise
        return None

    def _start(self, region: str, gang: GangMember) -> None:
        began, members = self._now(), self._members(region, gang)
        ranks = {each["metadata"]["labels"].get(pods.RANK) for each in members}
        if ranks != {str(rank) for rank in range(gang.nodes)} or any(pods.waits(each) for each in members):
            return  # the call that creates the last opens them
        waiting = [each for each in members if pods.waits(each, pods.GANG_GATE)]
        topology, decides = self._clusters.cluster(region).context.cluster_topology, len(waiting) == len(members)
        if decides:
            place, why = place_for(members, self.room(region), topology)
            if why:
                if any(not pods.waits(each, pods.GANG_GATE) for each in self._members(region, gang)):
                    raise NotYet(f"Another call has opened gates of these {gang.nodes} pods, which take room now.")
                raise InsufficientCapacity(f"There is no room for {gang.nodes} pods at once in {region}: {why}")
        else:
            place = _place_of(members, topology.key)
        for each in waiting:
            if self._now() - began > OPENED_WITHIN:
                raise Transient(f"The API server of {region} is too slow to open the gates of {gang.nodes} pods.")
            body = _opened(iso(began), {topology.key: place} if place else {})
            if decides and place:  # of two calls at once, one decides where all go
                body["metadata"]["resourceVersion"] = each["metadata"]["resourceVersion"]
                decides = False
            path = (*self._path(region, "pods"), each["metadata"]["name"])
            try:
                self._clusters.call(region, "PATCH", path, body=body, content_type=MERGE)
            except Gone:
                return  # somebody has deleted it, and whoever describes it says so

    def room(self, region: str) -> Room:
        """What the nodes have free, and the pods that the scheduler looks for nodes for."""
        bodies = list(self._clusters.listed(region, NODES))
        others = list(self._clusters.listed(region, PODS, fieldSelector=RUNNING))
        queued = [each for each in others if is_queued(each, self._now())]
        return Room(nodes_of(bodies, others, self._clusters.cluster(region).context), queued)

    def _members(self, region: str, gang: GangMember) -> list[Body]:
        listed = self._clusters.listed(region, self._path(region, "pods"), labelSelector=f"{pods.GANG}={gang.token}")
        return [each for each in listed if "deletionTimestamp" not in each["metadata"]]

    def _path(self, region: str, kind: str) -> tuple[str, ...]:
        return ("api", "v1", "namespaces", self._clusters.cluster(region).namespace, kind)


def _opened(at: str, where: Mapping[str, str]) -> dict[str, Any]:
    """The change of a pod that opens its gate. `where`: a label of the nodes that it may go to from now on."""
    return {
        "metadata": {"annotations": {pods.OPENED: at}},
        "spec": {
            "schedulingGates": [{"name": pods.GANG_GATE, "$patch": "delete"}],
            **({"nodeSelector": dict(where)} if where else {}),
        },
    }


def _place_of(members: Sequence[Body], key: str) -> str:
    """Where those whose gates are open go; empty: anywhere."""
    opened = (each["spec"] for each in members if not pods.waits(each, pods.GANG_GATE))
    return next((str(spec["nodeSelector"][key]) for spec in opened if key in spec.get("nodeSelector", {})), "")


def service(request: CreateRequest, gang: GangMember, owner: Body) -> dict[str, Any]:
    """The names `node-0.SERVICE` and so on, from the beginning."""
    belongs = {key: owner["metadata"][key] for key in ("name", "uid")} | {"apiVersion": "v1", "kind": "Pod"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": pods.service_name(gang),
            "labels": labels_of(all_tags(request))[0],
            "ownerReferences": [belongs],
        },
        "spec": {"clusterIP": "None", "selector": {pods.GANG: gang.token}, "publishNotReadyAddresses": True},
    }


def explained(pod: Body, gone: Gone, room: Callable[[], Room]) -> Gone:
    """Why a pod of a gang got no place, with what each node lacks."""
    placed, member = "nodeName" in pod["spec"], pods.GANG in pod["metadata"].get("labels", {})
    if placed or not member or gone.refused is not InsufficientCapacity:
        return gone
    try:
        why = without_room([pod], room())
    except BackendError:
        return gone
    return Gone(f"{gone} {why}".strip(), refused=gone.refused)
