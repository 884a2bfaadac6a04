"""Objects as an API server has them: nodes and pods, with as little as a test needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Body = dict[str, Any]
T4: Mapping[str, str] = {
    "nvidia.com/gpu.product": "Tesla-T4",
    "nvidia.com/gpu.memory": "15360",
    "nvidia.com/gpu.replicas": "1",
}


def node(
    name: str,
    cpu: str = "8",
    memory: str = "32Gi",
    disk: str = "200Gi",
    pods: str = "110",
    *,
    type: str = "",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Body] = (),
    ready: str = "True",
    unschedulable: bool = False,
    arch: str = "amd64",
    system: str = "linux",
    **devices: str,
) -> Body:
    """`devices`: by resource; `nvidia.com/gpu` is `nvidia_com__gpu`."""
    amounts = {each.replace("__", "/").replace("_", "."): amount for each, amount in devices.items()}
    allocatable = {"cpu": cpu, "memory": memory, "ephemeral-storage": disk, "pods": pods, **amounts}
    spec: Body = {"taints": list(taints)} if taints else {}
    if unschedulable:
        spec["unschedulable"] = True
    own = {"kubernetes.io/hostname": name, "kubernetes.io/arch": arch}
    typed = {"node.kubernetes.io/instance-type": type} if type else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**own, **typed, **(labels or {})}},
        "spec": spec,
        "status": {
            "allocatable": allocatable,
            "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": ready}],
            "nodeInfo": {"architecture": arch, "operatingSystem": system},
        },
    }


def container(name: str = "main", limits: Mapping[str, str] | None = None, **requests: str) -> Body:
    resources: Body = {"requests": requests} if requests else {}
    if limits:
        resources["limits"] = dict(limits)
    return {"name": name, "image": "busybox", **({"resources": resources} if resources else {})}


def pod(name: str, on: str = "", *containers: Body, phase: str = "Running", **spec: Any) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "others"},
        "spec": {"containers": list(containers), **({"nodeName": on} if on else {}), **spec},
        "status": {"phase": phase},
    }


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> Body:
    return {"key": key, "effect": effect, **({"value": value} if value else {})}
