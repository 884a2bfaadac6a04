"""Pods that start together: the nodes of one task.

Each waits behind a second gate, which is opened for all of them by whichever call finds all there, and room for all of
them. So none holds what another needs while it waits. A headless service, which the first pod owns, gives each a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chalicelib.backends.kit.owners import all_tags
from chalicelib.backends.kubernetes import pods
from chalicelib.backends.kubernetes.affinity import meets
from chalicelib.backends.kubernetes.catalog import NODES, PODS, RUNNING
from chalicelib.backends.kubernetes.client import MERGE, Clusters
from chalicelib.backends.kubernetes.labels import labels_of
from chalicelib.backends.kubernetes.nodes import Node, nodes_of
from chalicelib.backends.kubernetes.quantities import Amounts
from chalicelib.backends.kubernetes.usage import effective
from chalicelib.backends.spi import CreateRequest, GangMember
from chalicelib.domain.instants import SECOND, Micros, from_iso, iso
from chalicelib.errors import AlreadyThere, BackendError, Gone, InsufficientCapacity, Transient

Body = Mapping[str, Any]
Room = tuple[Sequence[Node], Sequence[Body]]
OPENED_WITHIN = 40 * SECOND  # by one call; the next goes on
HOPELESS_AFTER = 15 * SECOND  # without a node: what it lacks, others needn't wait for
SCHEDULER = "default-scheduler"
NAMED = 5  # nodes that a refusal names for each reason


class Gangs:
    def __init__(self, clusters: Clusters, now: Callable[[], Micros]) -> None:
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
        began, members = self._now(), self._members(region, gang)
        ranks = {each["metadata"]["labels"].get(pods.RANK) for each in members}
        if ranks != {str(rank) for rank in range(gang.nodes)} or any(pods.waits(each) for each in members):
            return  # the call that creates the last opens them
        waiting = [each for each in members if pods.waits(each, pods.GANG_GATE)]
        if len(waiting) == len(members) and (why := self.without_room(region, members)):
            raise InsufficientCapacity(f"There is no room for {gang.nodes} pods at once in {region}: {why}")
        opened = {
            "metadata": {"annotations": {pods.OPENED: iso(began)}},
            "spec": {"schedulingGates": [{"name": pods.GANG_GATE, "$patch": "delete"}]},
        }
        for each in waiting:
            if self._now() - began > OPENED_WITHIN:
                raise Transient(f"The API server of {region} is too slow to open the gates of {gang.nodes} pods.")
            path = (*self._path(region, "pods"), each["metadata"]["name"])
            try:
                self._clusters.call(region, "PATCH", path, body=opened, content_type=MERGE)
            except Gone:
                return  # somebody has deleted it, and whoever describes it says so

    def without_room(self, region: str, members: Sequence[Body]) -> str:
        """What each node lacks for those of them that find no place; empty if all do. Others that the scheduler is
        about to place come first."""
        return without_room(members, self.room(region))

    def room(self, region: str) -> Room:
        """What the nodes have free, and the pods that the scheduler looks for nodes for."""
        bodies = list(self._clusters.listed(region, NODES))
        others = list(self._clusters.listed(region, PODS, fieldSelector=RUNNING))
        queued = [each for each in others if _is_queued(each, self._now())]
        return nodes_of(bodies, others, self._clusters.cluster(region).context), queued

    def _members(self, region: str, gang: GangMember) -> list[Body]:
        listed = self._clusters.listed(region, self._path(region, "pods"), labelSelector=f"{pods.GANG}={gang.token}")
        return [each for each in listed if "deletionTimestamp" not in each["metadata"]]

    def _path(self, region: str, kind: str) -> tuple[str, ...]:
        return ("api", "v1", "namespaces", self._clusters.cluster(region).namespace, kind)


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


# --- room -------------------------------------------------------------------------------------------------------------


def without_room(members: Sequence[Body], room: Room) -> str:
    """What each node lacks for those of them that find no place beside the others; empty if all do."""
    (nodes, queued), own = room, {each["metadata"]["uid"] for each in members}
    return unplaced(members, nodes, [each for each in queued if each["metadata"]["uid"] not in own])


def unplaced(members: Sequence[Body], nodes: Sequence[Node], first: Sequence[Body] = ()) -> str:
    """Places the pods as a scheduler would, the largest first. What each node lacks, if that isn't enough."""
    left = {node.name: dict(node.free) for node in nodes}
    ahead = sum(_place(pod, nodes, left) for pod in first)
    missed = [pod for pod in sorted(members, key=_size, reverse=True) if not _place(pod, nodes, left)]
    if not missed:
        return ""
    reasons: dict[str, list[str]] = {}
    for node in nodes:
        if why := _why_not(node, left[node.name], missed[0], effective(missed[0])):
            reasons.setdefault(why, []).append(node.name)
    listed = "; ".join(f"{_names(names)} ({why})" for why, names in reasons.items())
    placed = len(members) - len(missed)
    fit = f"{placed} fit, and for the next " if placed else ""
    return f"{fit}{listed or 'there is no node'}{_before(ahead)}."


def _before(ahead: int) -> str:
    if ahead == 0:
        return ""
    return (
        f"; {ahead} pods that wait for a node come first" if ahead > 1 else "; a pod that waits for a node comes first"
    )


def _size(pod: Body) -> int:
    return effective(pod).get("memory", 0)


def _place(pod: Body, nodes: Sequence[Node], left: dict[str, dict[str, int]]) -> bool:
    """Takes what the pod needs from the first node that has it; False: none does."""
    needs = effective(pod)
    for node in nodes:
        if not _why_not(node, left[node.name], pod, needs):
            left[node.name] = {what: amount - needs.get(what, 0) for what, amount in left[node.name].items()}
            return True
    return False


def _is_queued(pod: Body, now: Micros) -> bool:
    """Is the scheduler about to place it? Not if it has found no node for a while, or isn't asked."""
    spec, status, metadata = pod["spec"], pod.get("status", {}), pod["metadata"]
    if spec.get("nodeName") or spec.get("schedulingGates") or "deletionTimestamp" in metadata:
        return False
    if spec.get("schedulerName", SCHEDULER) != SCHEDULER:
        return False
    placed: Body = next((each for each in status.get("conditions", ()) if each["type"] == "PodScheduled"), {})
    if placed.get("reason") != "Unschedulable" or status.get("nominatedNodeName"):
        return True
    opened = metadata.get("annotations", {}).get(pods.OPENED)  # until then it couldn't be placed
    times = [from_iso(at) for at in (opened, placed.get("lastTransitionTime")) if at]
    return not times or now - max(times) < HOPELESS_AFTER


def _why_not(node: Node, left: Amounts, pod: Body, needs: Amounts) -> str:
    """Why the pod can't be on the node beside what is there; empty if it can."""
    if node.unusable:
        return node.unusable
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ())
    if terms and not any(all(_meets(each, node.labels) for each in one.get("matchExpressions", ())) for one in terms):
        return "not of the offer's kind"
    if pod["spec"].get("nodeSelector", {}).items() - node.labels.items():
        return "without the labels of `node_selector`"
    tolerated = [each.get("key", "") for each in pod["spec"].get("tolerations", ())]
    if taint := node.is_kept_for_devices(*tolerated):
        return f"kept for others by the taint {taint}"
    for what, amount in needs.items():
        if (has := left.get(what, 0)) < amount:
            return f"{_amount(what, has)} of {_amount(what, node.total.get(what, 0))} {what} free"
    return ""


def _meets(expression: Body, labels: Mapping[str, str]) -> bool:
    return meets(labels, expression["key"], expression["operator"], expression.get("values", ()))


def _amount(what: str, amount: int) -> str:
    if what == "cpu":
        return f"{amount / 1000:g}"
    return f"{amount / (1 << 30):.1f} GB" if what in ("memory", "ephemeral-storage") else str(amount)


def _names(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return f"{', '.join(names[:NAMED])}{f' and {more} more' if more > 0 else ''}"
