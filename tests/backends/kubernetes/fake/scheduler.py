"""Which node a pod goes to: filters as a real scheduler has them, and its messages about those that don't fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tests.backends.kubernetes.fake.operations import ended
from tests.backends.kubernetes.fake.quantities import amount
from tests.backends.kubernetes.fake.quotas import ENDED
from tests.backends.kubernetes.fake.requests import Amounts, effective, plus
from tests.backends.kubernetes.fake.schema import Object
from tests.backends.kubernetes.fake.selectors import meets, of_expressions

if TYPE_CHECKING:
    from tests.backends.kubernetes.fake.cluster import Cluster

ONE = Decimal(1)
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def tolerates(spec: Mapping[str, Any], taint: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The toleration of a pod for a taint."""
    for each in spec.get("tolerations", ()):
        key, operator = each.get("key", ""), each.get("operator", "Equal")
        if each.get("effect", "") not in ("", taint["effect"]) or key not in ("", taint["key"]):
            continue
        if operator == "Exists" or (key and each.get("value", "") == taint.get("value", "")):
            found: Mapping[str, Any] = each
            return found
    return None


def booked(pod: Object) -> bool:
    """Does it hold what it asked for? Also while it's being deleted."""
    return bool(pod["spec"].get("nodeName")) and pod["status"]["phase"] not in ENDED


class Books:
    """What each node has, and which pods hold it."""

    def __init__(self, nodes: Sequence[Object], pods: Sequence[Object], requested: dict[str, Amounts]) -> None:
        self._requested = requested  # by uid: what a pod asks for is the same for its whole life
        self.nodes = {each["metadata"]["name"]: each for each in nodes}
        self.pods: dict[str, list[Object]] = {name: [] for name in self.nodes}
        for pod in pods:
            if booked(pod) and pod["spec"]["nodeName"] in self.pods:
                self.pods[pod["spec"]["nodeName"]].append(pod)
        self._taken = {name: self._sum(each) for name, each in self.pods.items()}

    def add(self, node: str, pod: Object) -> None:
        self.pods[node].append(pod)
        self._taken[node] = plus(self._taken[node], self._requests(pod))

    def short(self, node: str, pod: Object, without: Sequence[Object] = ()) -> list[str]:
        """The resources of which the node has too little."""
        has = self.nodes[node]["status"].get("allocatable", {})
        taken = (
            self._taken[node] if not without else self._sum([each for each in self.pods[node] if each not in without])
        )
        return [
            name
            for name, wanted in sorted(self._requests(pod).items())
            if wanted and taken.get(name, Decimal(0)) + wanted > amount(has.get(name, "0"))
        ]

    def load(self, node: str) -> Decimal:
        has = self.nodes[node]["status"].get("allocatable", {})
        return max(
            self._taken[node].get(each, Decimal(0)) / (amount(has.get(each, "1")) or ONE) for each in ("cpu", "memory")
        )

    def _requests(self, pod: Object) -> Amounts:
        uid = pod["metadata"]["uid"]
        if uid not in self._requested:
            self._requested[uid] = plus(effective(pod["spec"]), {"pods": ONE})
        return self._requested[uid]

    def _sum(self, pods: Sequence[Object]) -> Amounts:
        total: Amounts = {}
        for each in pods:
            for name, value in self._requests(each).items():
                total[name] = total.get(name, Decimal(0)) + value
        return total


class Scheduler:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.paused = False
        self.requested: dict[str, Amounts] = {}

    def settle(self) -> None:
        store = self._cluster.store
        pods = store.in_order("pods")
        waiting = [each for each in pods if _waits(each)]
        if not waiting or self.paused:
            return
        books = Books(store.in_order("nodes"), pods, self.requested)
        for pod in sorted(waiting, key=lambda each: -each["spec"].get("priority", 0)):
            if pod["spec"].get("schedulingGates"):
                message = "Scheduling is blocked due to non-empty scheduling gates"
                self._cluster.condition(pod, "PodScheduled", "False", "SchedulingGated", message)
                continue
            self._place(pod, books)

    def bind(self, pod: Object, node: str) -> None:
        cluster, meta = self._cluster, pod["metadata"]
        bound = cluster.store.change(pod, spec={"nodeName": node})
        cluster.condition(bound, "PodScheduled", "True")
        cluster.event(pod, "Scheduled", f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}")

    def _place(self, pod: Object, books: Books) -> None:
        claims = self._claims(pod)
        why = [claims] if isinstance(claims, str) else None
        reasons = {name: why or self._unfit(pod, name, books) for name in books.nodes}
        fit = [name for name, each in reasons.items() if not each]
        if fit:
            best = min(fit, key=lambda name: (_soft(pod, books.nodes[name], books), books.load(name)))
            if failing := self._cluster.binder.failing(pod):
                message = (
                    f'running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "{failing}"'
                )
                if self._cluster.condition(pod, "PodScheduled", "False", "SchedulerError", message):
                    self._cluster.event(pod, "FailedScheduling", message, "Warning")
                return
            books.add(best, pod)
            self.bind(pod, best)
            return
        preempted = "" if why else self._preempt(pod, reasons, books)
        message = _message(reasons, why, preempted)
        changed = self._cluster.condition(pod, "PodScheduled", "False", "Unschedulable", message)
        if changed:
            self._cluster.event(pod, "FailedScheduling", message, "Warning")

    def _unfit(self, pod: Object, name: str, books: Books) -> list[str]:
        """Why a node is none for the pod, by the first filter that says so."""
        node, spec = books.nodes[name], pod["spec"]
        unschedulable = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        if node["spec"].get("unschedulable") and not tolerates(spec, unschedulable):
            return ["node(s) were unschedulable"]
        for taint in node["spec"].get("taints", ()):
            if taint["effect"] != "PreferNoSchedule" and not tolerates(spec, taint):
                return [f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"]
        if not selected(spec, node):
            return ["node(s) didn't match Pod's node affinity/selector"]
        ports = _host_ports(pod)
        if ports and ports & {port for each in books.pods[name] for port in _host_ports(each)}:
            return ["node(s) didn't have free ports for the requested pod ports"]
        if short := books.short(name, pod):
            return ["Too many pods" if each == "pods" else f"Insufficient {each}" for each in short]
        for kind, wanted, rules in (("podAffinity", True, "affinity"), ("podAntiAffinity", False, "anti-affinity")):
            for term in (
                spec.get("affinity", {}).get(kind, {}).get("requiredDuringSchedulingIgnoredDuringExecution", ())
            ):
                if _beside(pod, term, node, books) is not wanted:
                    return [f"node(s) didn't match pod {rules} rules"]
        return []

    def _claims(self, pod: Object) -> str | None:
        """What is wrong with the pod's claims, wherever it goes."""
        store = self._cluster.store
        for volume in pod["spec"].get("volumes", ()):
            if name := volume.get("persistentVolumeClaim", {}).get("claimName"):
                claim = store.find("persistentvolumeclaims", pod["metadata"]["namespace"], name)
                if claim is None:
                    return f'persistentvolumeclaim "{name}" not found'
                if "deletionTimestamp" in claim["metadata"]:
                    return f'persistentvolumeclaim "{name}" is being deleted'
                if claim["status"]["phase"] != "Bound" and not self._cluster.binder.waits(claim):
                    return "pod has unbound immediate PersistentVolumeClaims"
        return None

    def _preempt(self, pod: Object, reasons: Mapping[str, list[str]], books: Books) -> str:
        """Takes back the fewest pods of lower priority that make room, and says what came of it."""
        if pod["spec"].get("preemptionPolicy") == "Never":
            return f"{len(reasons)} Preemption is not helpful for scheduling"
        could = {
            name for name, each in reasons.items() if all(one.startswith(("Insufficient", "Too many")) for one in each)
        }
        found: list[tuple[int, str, list[Object]]] = []
        for name in sorted(could):
            lower = [
                each for each in books.pods[name] if each["spec"].get("priority", 0) < pod["spec"].get("priority", 0)
            ]
            victims: list[Object] = []
            for each in sorted(lower, key=lambda one: one["spec"].get("priority", 0)):
                if books.short(name, pod, victims):
                    victims.append(each)
            if victims and not books.short(name, pod, victims):
                found.append((len(victims), name, victims))
        if found:
            _, name, victims = min(found, key=lambda each: each[:2])
            for victim in victims:
                self._take_back(victim, pod)
            return ""
        helpless = len(reasons) - len(could)
        parts = [f"{helpless} Preemption is not helpful for scheduling"] if helpless else []
        return ", ".join(parts + ([f"{len(could)} No preemption victims found for incoming pod"] if could else []))

    def _take_back(self, victim: Object, pod: Object) -> None:
        cluster, uid = self._cluster, pod["metadata"]["uid"]
        if "deletionTimestamp" in victim["metadata"]:
            return
        message = "default-scheduler: preempting to accommodate a higher priority pod"
        changed = cluster.disrupt(victim, "PreemptionByScheduler", message)
        cluster.event(victim, "Preempted", f"Preempted by pod {uid} on node {victim['spec']['nodeName']}")
        ended(cluster.store, changed)


def _waits(pod: Object) -> bool:
    spec = pod["spec"]
    ours = spec.get("schedulerName") == "default-scheduler" and not spec.get("nodeName")
    return ours and pod["status"]["phase"] == "Pending" and "deletionTimestamp" not in pod["metadata"]


def selected(spec: Mapping[str, Any], node: Object) -> bool:
    """Do the pod's selector of nodes and its affinity choose the node?"""
    labels = node["metadata"].get("labels", {})
    if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return False
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    needed = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if needed is None:
        return True
    own = {"metadata.name": node["metadata"]["name"]}
    return any(
        all(meets(each, labels) for each in term.get("matchExpressions", ()))
        and all(meets(each, own) for each in term.get("matchFields", ()))
        for term in needed["nodeSelectorTerms"]
        if term.get("matchExpressions") or term.get("matchFields")
    )


def _soft(pod: Object, node: Object, books: Books) -> int:
    """How unwelcome the pod is: soft taints that it doesn't tolerate, preferences that the node doesn't meet, and pods
    over which it is to be spread."""
    taints, labels = node["spec"].get("taints", ()), node["metadata"].get("labels", {})
    unwelcome = sum(each["effect"] == "PreferNoSchedule" and not tolerates(pod["spec"], each) for each in taints)
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    met: int = sum(
        each["weight"]
        for each in affinity.get(_PREFERRED, ())
        if all(meets(one, labels) for one in each["preference"].get("matchExpressions", ()))
    )
    for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
        for each in pod["spec"].get("affinity", {}).get(kind, {}).get(_PREFERRED, ()):
            met += sign * each["weight"] * _beside(pod, each["podAffinityTerm"], node, books)
    crowd = sum(_count(pod, each, node, books) for each in pod["spec"].get("topologySpreadConstraints", ()))
    return int(100 * unwelcome - met + 10 * crowd)


def _host_ports(pod: Object) -> set[int]:
    return {
        port["hostPort"] for each in pod["spec"]["containers"] for port in each.get("ports", ()) if "hostPort" in port
    }


def _beside(pod: Object, term: Mapping[str, Any], node: Object, books: Books) -> bool:
    """Is there a pod that the term selects in the node's place?"""
    return _count(pod, term, node, books) > 0


def _count(pod: Object, term: Mapping[str, Any], node: Object, books: Books) -> int:
    """How many pods that the term selects are in the node's place."""
    key = term["topologyKey"]
    place = node["metadata"].get("labels", {}).get(key)
    matches = of_expressions(term.get("labelSelector", {}))
    spaces = term.get("namespaces") or [pod["metadata"]["namespace"]]
    return sum(
        each["metadata"]["namespace"] in spaces and matches(each["metadata"].get("labels", {}))
        for name, other in books.nodes.items()
        if place is not None and other["metadata"].get("labels", {}).get(key) == place
        for each in books.pods[name]
    )


def _message(reasons: Mapping[str, list[str]], why: list[str] | None, preempted: str) -> str:
    if not reasons:
        return "no nodes available to schedule pods"
    total = len(reasons)
    counted = Counter(each for found in reasons.values() for each in found)
    listed = ", ".join(why) if why else ", ".join(sorted(f"{count} {each}" for each, count in counted.items()))
    more = preempted or (f"{total} Preemption is not helpful for scheduling" if why else "")
    preemption = f" preemption: 0/{total} nodes are available: {more}." if more else ""
    return f"0/{total} nodes are available: {listed}.{preemption}"
