"""Room for pods that start together: a scheduler's own filters, applied to all of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from chalicelib.backends.kubernetes import pods
from chalicelib.backends.kubernetes.affinity import meets
from chalicelib.backends.kubernetes.config import KubernetesTopology
from chalicelib.backends.kubernetes.nodes import Node
from chalicelib.backends.kubernetes.quantities import Amounts
from chalicelib.backends.kubernetes.usage import effective
from chalicelib.domain.instants import SECOND, Micros, from_iso

Body = Mapping[str, Any]
HOPELESS_AFTER = 15 * SECOND  # without a node: what it lacks, others needn't wait for
SCHEDULER = "default-scheduler"
NAMED = 5  # nodes that a refusal names for each reason


class Room(NamedTuple):
    nodes: Sequence[Node]
    queued: Sequence[Body]  # pods that the scheduler looks for nodes for


def place_for(members: Sequence[Body], room: Room, topology: KubernetesTopology) -> tuple[str, str]:
    """Where all of them have room and are close together: a value of the topology's label, the one with the fewest
    nodes, or empty for anywhere. And why they can't start, or empty."""
    if why := without_room(members, room):
        return "", why
    places: dict[str, list[Node]] = {}
    for node in room.nodes:
        if topology.key in node.labels:
            places.setdefault(node.labels[topology.key], []).append(node)
    lacking = []
    for place, inside in sorted(places.items(), key=lambda each: (len(each[1]), each[0])):
        why = without_room(members, room, inside)
        if not why:
            return place if topology.required or len(inside) < len(room.nodes) else "", ""
        lacking.append(f"{place}: {why.rstrip('.')}")
    if not topology.required:
        return "", ""
    return "", f"nowhere with one {topology.key}. {'. '.join(lacking) or 'No node has this label'}."


def without_room(members: Sequence[Body], room: Room, inside: Sequence[Node] | None = None) -> str:
    """What each node lacks for those of them that find no place beside the others; empty if all do. `inside`: the only
    nodes for them."""
    own = {each["metadata"]["uid"] for each in members}
    first = [each for each in room.queued if each["metadata"]["uid"] not in own]
    return _unplaced(members, room.nodes, room.nodes if inside is None else inside, first)


def _unplaced(members: Sequence[Body], every: Sequence[Node], nodes: Sequence[Node], first: Sequence[Body]) -> str:
    """Places the pods as a scheduler would, the largest first. What each node lacks, if that isn't enough."""
    left = {node.name: dict(node.free) for node in every}
    ahead = sum(_place(pod, every, left) for pod in first)
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


def is_queued(pod: Body, now: Micros) -> bool:
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
    lacking = pod["spec"].get("nodeSelector", {}).items() - node.labels.items()
    topology = node.context.cluster_topology.key
    if lacking and {key for key, _ in lacking} == {topology}:
        return f"not where the task's other nodes go, {topology}={dict(lacking)[topology]}"
    if lacking:
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
