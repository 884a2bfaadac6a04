"""Whether something in a cluster adds nodes for pods that wait, as far as its nodes and pods show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Body = Mapping[str, Any]
IMAGES = {"cluster-autoscaler": "Cluster Autoscaler", "karpenter": "Karpenter"}  # what their images' names contain
LABELS = {"karpenter.sh/nodepool": "Karpenter"}  # of the nodes that they have made


def noting_autoscalers(pods: Iterable[Body], found: set[str]) -> Iterator[Body]:
    """The pods, unchanged; `found` gets the autoscalers that run among them."""
    for pod in pods:
        for container in pod["spec"].get("containers", ()):
            image = str(container.get("image", "")).partition("@")[0]
            found.update(name for part, name in IMAGES.items() if part in image)
        yield pod


def autoscalers_of(nodes: Iterable[Body]) -> Iterator[str]:
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        yield from (name for label, name in LABELS.items() if label in labels)
