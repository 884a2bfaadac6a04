"""Nodes as jobs see them: whether they may be used, and what they have left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from chalicelib.backends.kubernetes.affinity import meets
from chalicelib.backends.kubernetes.config import KubernetesContext, KubernetesToleration
from chalicelib.backends.kubernetes.devices import FAMILIES, Device, device, resources_of
from chalicelib.backends.kubernetes.quantities import Amounts, available
from chalicelib.backends.kubernetes.usage import free

Body = Mapping[str, Any]
ARCHES = {"amd64": "x86", "arm64": "arm"}
HOSTNAME = "kubernetes.io/hostname"
TYPE = "node.kubernetes.io/instance-type"
KEEPS_AWAY = ("NoSchedule", "NoExecute")  # the other effect is a wish


@dataclass(frozen=True)
class Node:
    body: Body
    free: Amounts
    context: KubernetesContext

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def labels(self) -> Mapping[str, str]:
        return self.body["metadata"].get("labels") or {}

    @property
    def arch(self) -> str:
        """As Kubernetes calls it."""
        return self._info("architecture")

    def _info(self, name: str) -> str:
        return str(self.body.get("status", {}).get("nodeInfo", {}).get(name, ""))

    @cached_property
    def total(self) -> Amounts:
        return available(self.body.get("status", {}).get("allocatable", {}))

    @property
    def unusable(self) -> str:
        """Why no job of ours may run there; empty if one may. Taints of devices are another matter."""
        if self.context.node_selector.items() - self.labels.items():
            return "without the labels of `node_selector`"
        for each in self.context.node_affinity:
            if not meets(self.labels, each.key, each.operator, each.values):
                values = f" {', '.join(each.values)}" if each.values else ""
                return f"against `node_affinity`: {each.key} {each.operator}{values}"
        if self.body["spec"].get("unschedulable"):
            return "cordoned"
        conditions = {each["type"]: each["status"] for each in self.body.get("status", {}).get("conditions", ())}
        if conditions.get("Ready") != "True":
            return "not ready"
        if (system := self._info("operatingSystem")) != "linux":
            return f"operating system {system or 'unknown'}"
        if self.arch not in ARCHES:
            return f"architecture {self.arch or 'unknown'}"
        taint = next((each for each in self._taints(self.context.tolerations) if each["key"] not in FAMILIES), None)
        return f"taint {_shown(taint)}" if taint else ""

    def is_kept_for_devices(self, *keys: str) -> str:
        """The taint that keeps away pods without its devices; `keys`: those that the pod tolerates. Empty: none
        does."""
        taints = (each for each in self._taints(self.context.tolerations) if each["key"] in FAMILIES)
        return next((_shown(each) for each in taints if each["key"] not in keys), "")

    def _taints(self, tolerations: Sequence[KubernetesToleration]) -> Iterator[Body]:
        for taint in self.body["spec"].get("taints", ()):
            if taint["effect"] in KEEPS_AWAY and not any(tolerates(each, taint) for each in tolerations):
                yield taint

    @cached_property
    def devices(self) -> Mapping[str, Device | None]:
        """By resource. None: nothing says what it is."""
        names = sorted({*resources_of(self.total), *(each.resource for each in self.context.accelerators)})
        return {
            name: device(name, self.labels, self.context.accelerators) for name in names if self.total.get(name, 0) > 0
        }


def tolerates(toleration: KubernetesToleration, taint: Body) -> bool:
    if toleration.effect is not None and toleration.effect != taint["effect"]:
        return False
    if toleration.key is not None and toleration.key != taint["key"]:
        return False
    return toleration.operator == "Exists" or (toleration.value or "") == taint.get("value", "")


def _shown(taint: Body) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def nodes_of(nodes: Iterable[Body], pods: Iterable[Body], context: KubernetesContext) -> list[Node]:
    bodies = sorted(nodes, key=lambda body: str(body["metadata"]["name"]))
    left = free(bodies, pods)
    return [Node(body, left[body["metadata"]["name"]], context) for body in bodies]
