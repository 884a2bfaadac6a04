"""What pods take of their nodes: the scheduler's own sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from chalicelib.backends.kubernetes.quantities import available, largest, requested, total

Body = Mapping[str, Any]
PODS = "pods"  # how many pods a node can have: a resource like any other


def effective(pod: Body) -> dict[str, int]:
    """The amounts that the scheduler books for a pod.

    Init containers run one after another before the others, so only the largest counts; but a sidecar, which is an init
    container that restarts, goes on beside all that follow it.
    """
    spec = pod["spec"]
    sidecars: list[dict[str, int]] = []
    moments = []
    for container in spec.get("initContainers", ()):
        asks = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars.append(asks)
            moments.append(total(sidecars))
        else:
            moments.append(total([*sidecars, asks]))
    running = total([*sidecars, *map(_requests, spec.get("containers", ()))])
    whole = requested(spec.get("resources", {}).get("requests", {}))  # of the pod itself, where it has them
    overhead = requested(spec.get("overhead", {}))
    return total([{**largest([running, *moments]), **whole}, overhead, {PODS: 1}])


def _requests(container: Body) -> dict[str, int]:
    resources = container.get("resources", {})
    return requested({**resources.get("limits", {}), **resources.get("requests", {})})


def takes_resources(pod: Body) -> bool:
    """Until it has ended, also while it is being deleted."""
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def free(nodes: Iterable[Body], pods: Iterable[Body]) -> dict[str, dict[str, int]]:
    """What each node has left, by its name. Pods that aren't on a node yet take nothing."""
    taken: dict[str, list[dict[str, int]]] = {}
    for pod in pods:
        if (name := pod["spec"].get("nodeName")) and takes_resources(pod):
            taken.setdefault(name, []).append(effective(pod))
    found = {}
    for node in nodes:
        name = node["metadata"]["name"]
        has, used = available(node.get("status", {}).get("allocatable", {})), total(taken.get(name, ()))
        found[name] = {resource: max(0, amount - used.get(resource, 0)) for resource, amount in has.items()}
    return found
