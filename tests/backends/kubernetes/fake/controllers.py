"""The small controllers: nodes and their taints, claims, owners, namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chalicelib.domain.instants import SECOND, Micros, from_iso
from tests.backends.kubernetes.fake.admission import PROTECTION
from tests.backends.kubernetes.fake.operations import ended
from tests.backends.kubernetes.fake.quantities import amount, written
from tests.backends.kubernetes.fake.quotas import ENDED
from tests.backends.kubernetes.fake.scheduler import tolerates
from tests.backends.kubernetes.fake.schema import Object, of_kind, resources
from tests.backends.kubernetes.fake.store import copied, date, owners

if TYPE_CHECKING:
    from tests.backends.kubernetes.fake.cluster import Cluster

NEVER: Micros = 1 << 62
SILENT = 40 * SECOND  # after which a node isn't believed to be alive
_OWN = ("node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def ready(now: str, status: str = "True") -> Object:
    reason, message = {
        "True": ("KubeletReady", "kubelet is posting ready status"),
        "False": ("KubeletNotReady", "container runtime is down"),
        "Unknown": ("NodeStatusUnknown", "Kubelet stopped posting node status."),
    }[status]
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


class Nodes:
    """Nodes that are lost, the taints that say so, and the pods that these evict."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.lost: dict[str, Micros] = {}  # since when a node's kubelet is silent

    def lose(self, name: str) -> None:
        self.lost[name] = self._cluster.now()
        self._cluster.wake()

    def come_back(self, name: str) -> None:
        del self.lost[name]
        self._cluster.wake()

    def settle(self) -> Micros:
        due, now, store = NEVER, self._cluster.now(), self._cluster.store
        for found in store.in_order("nodes"):
            node, name = found, found["metadata"]["name"]
            since = self.lost.get(name)
            believed = since is None or now < since + SILENT
            if since is not None and believed:
                due = min(due, since + SILENT)
            conditions = node["status"].get("conditions", [])
            old = next((each["status"] for each in conditions if each["type"] == "Ready"), None)
            if old is not None and (old == "Unknown") is believed:
                status = "True" if believed else "Unknown"
                others = [each for each in conditions if each["type"] != "Ready"]
                node = store.change(node, status={"conditions": [*others, ready(date(now), status)]})
                old = status
            due = min(due, self._evict(self._tainted(node, old), now))
        names = {each["metadata"]["name"] for each in store.in_order("nodes")}
        for pod in store.in_order("pods"):
            if pod["spec"].get("nodeName") and pod["spec"]["nodeName"] not in names:
                store.remove(
                    of_kind("Pod"), self._cluster.disrupt(pod, "DeletionByPodGC", "PodGC: node no longer exists")
                )
        return due

    def _tainted(self, node: Object, status: str | None) -> Object:
        taints = node["spec"].get("taints", [])
        keys: dict[str, tuple[str, ...]] = {_OWN[0]: ("NoSchedule",)} if node["spec"].get("unschedulable") else {}
        if status in ("False", "Unknown"):
            keys[_OWN[1] if status == "False" else _OWN[2]] = ("NoSchedule", "NoExecute")
        own = [{"key": key, "effect": effect} for key, effects in keys.items() for effect in effects]
        before = [{"key": each["key"], "effect": each["effect"]} for each in taints if each["key"] in _OWN]
        if own == before:
            return node
        added = date(self._cluster.now())
        new = [each for each in taints if each["key"] not in _OWN]
        new += ({**each, "timeAdded": added} if each["effect"] == "NoExecute" else each for each in own)
        return self._cluster.store.change(node, spec={"taints": new})

    def _evict(self, node: Object, now: Micros) -> Micros:
        due = NEVER
        taints = [each for each in node["spec"].get("taints", ()) if each["effect"] == "NoExecute"]
        for pod in self._cluster.store.in_order("pods") if taints else ():
            if pod["spec"].get("nodeName") != node["metadata"]["name"] or pod["status"]["phase"] in ENDED:
                continue
            if "deletionTimestamp" in pod["metadata"]:
                continue
            for taint in taints:
                toleration = tolerates(pod["spec"], taint)
                if toleration is not None and "tolerationSeconds" not in toleration:
                    continue
                seconds = toleration["tolerationSeconds"] if toleration else 0
                at = from_iso(taint.get("timeAdded", date(now))) + seconds * SECOND
                if now < at:
                    due = min(due, at)
                    continue
                why = "Taint manager: deleting due to NoExecute taint"
                changed = self._cluster.disrupt(pod, "DeletionByTaintManager", why)
                self._cluster.event(
                    pod,
                    "TaintManagerEviction",
                    f"Marking for deletion Pod {pod['metadata']['namespace']}/{pod['metadata']['name']}",
                )
                ended(self._cluster.store, changed)
                break
        return due


class Binder:
    """Gives claims their volumes, as their classes say, and keeps claims that pods use."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.fails: dict[str, str] = {}  # classes whose provisioner fails, and what it says

    def waits(self, claim: Object) -> bool:
        """For the first pod that uses it?"""
        found = self._class(claim)
        return found is not None and found["volumeBindingMode"] == "WaitForFirstConsumer"

    def _class(self, claim: Object) -> Object | None:
        name = claim["spec"].get("storageClassName", "")
        return self._cluster.store.find("storageclasses", "", name)

    def settle(self) -> Micros:
        for claim in self._cluster.store.in_order("persistentvolumeclaims"):
            users = self._users(claim)
            if "deletionTimestamp" in claim["metadata"]:
                if not users and PROTECTION in claim["metadata"].get("finalizers", ()):
                    new = copied(claim)
                    new["metadata"]["finalizers"].remove(PROTECTION)
                    self._cluster.store.replace(of_kind("PersistentVolumeClaim"), claim, new)
            elif claim["status"]["phase"] == "Pending":
                self._bind(claim, users)
        return NEVER

    def _users(self, claim: Object) -> list[Object]:
        meta = claim["metadata"]
        return [
            each
            for each in self._cluster.store.all("pods", meta["namespace"])
            if each["status"]["phase"] not in ENDED and meta["name"] in claims_of(each)
        ]

    def _bind(self, claim: Object, users: list[Object]) -> None:
        cluster, store, found = self._cluster, self._cluster.store, self._class(claim)
        name = claim["spec"].get("storageClassName", "")
        if found is None:
            return
        if self.waits(claim) and not any(each["spec"].get("nodeName") for each in users):
            self._once(
                claim, "WaitForFirstConsumer", "waiting for first consumer to be created before binding", "Normal"
            )
            return
        if name in self.fails:
            self._fail(claim)
            return
        size = claim["spec"]["resources"]["requests"]["storage"]
        volume, meta = f"pvc-{claim['metadata']['uid']}", claim["metadata"]
        spec: dict[str, Any] = {
            "capacity": {"storage": size},
            "accessModes": claim["spec"]["accessModes"],
            "storageClassName": name,
            "persistentVolumeReclaimPolicy": found["reclaimPolicy"],
            "claimRef": {
                "kind": "PersistentVolumeClaim",
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
        }
        cluster.add("PersistentVolume", volume, spec=spec, status={"phase": "Bound"})
        capacity = {"storage": written(amount(size), binary=True)}
        status = {"phase": "Bound", "capacity": capacity, "accessModes": claim["spec"]["accessModes"]}
        store.change(claim, spec={"volumeName": volume}, status=status)

    def failing(self, pod: Object) -> str:
        """A claim of the pod that waits for its node, and gets no disk there; empty if there is none."""
        for name in claims_of(pod):
            claim = self._cluster.store.find("persistentvolumeclaims", pod["metadata"]["namespace"], name)
            is_open = claim is not None and self.waits(claim) and claim["status"]["phase"] != "Bound"
            if claim is not None and is_open and claim["spec"].get("storageClassName", "") in self.fails:
                self._fail(claim)
                return name
        return ""

    def _fail(self, claim: Object) -> None:
        name = claim["spec"]["storageClassName"]
        message = f'failed to provision volume with StorageClass "{name}": {self.fails[name]}'
        self._once(claim, "ProvisioningFailed", message, "Warning")

    def _once(self, claim: Object, reason: str, message: str, kind: str) -> None:
        events = self._cluster.store.all("events", claim["metadata"]["namespace"])
        uid = claim["metadata"]["uid"]
        if not any(each["involvedObject"]["uid"] == uid and each["message"] == message for each in events):
            self._cluster.event(claim, reason, message, kind, "persistentvolume-controller")


def claims_of(pod: Object) -> list[str]:
    volumes = pod["spec"].get("volumes", ())
    return [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]


def collect_garbage(cluster: Cluster) -> None:
    """Objects whose owners are all gone."""
    store = cluster.store
    for key in list(store.owned):
        each = store.find(*key)
        if each is None:
            store.owned.discard(key)
            continue
        uids = list(owners(each))
        if uids and not any(uid in store.uids for uid in uids) and "deletionTimestamp" not in each["metadata"]:
            ended(store, each)


def end_namespaces(cluster: Cluster) -> None:
    """What is in a namespace that ends, then the namespace; and each has an account for its pods."""
    store = cluster.store
    for namespace in store.in_order("namespaces"):
        name = namespace["metadata"]["name"]
        if "deletionTimestamp" not in namespace["metadata"]:
            if store.find("serviceaccounts", name, "default") is None:
                cluster.add("ServiceAccount", "default", name)
            continue
        inside = [each for plural, of in resources().items() if of.namespaced for each in store.all(plural, name)]
        for each in inside:
            if "deletionTimestamp" not in each["metadata"]:
                ended(store, each)
        if not inside:
            store.change(namespace, spec={"finalizers": []})
