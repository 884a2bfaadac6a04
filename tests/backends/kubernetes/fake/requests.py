"""What a pod asks of its node."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tests.backends.kubernetes.fake.quantities import amount

Amounts = dict[str, Decimal]


def plus(left: Mapping[str, Decimal], right: Mapping[str, Decimal]) -> Amounts:
    return {name: left.get(name, Decimal(0)) + right.get(name, Decimal(0)) for name in {**left, **right}}


def is_sidecar(container: Mapping[str, Any]) -> bool:
    """Of the init containers: one that stays."""
    return bool(container.get("restartPolicy") == "Always")


def effective(spec: Mapping[str, Any], side: str = "requests") -> Amounts:
    """By resource, the larger of what its containers and sidecars ask for together and what an init container asks for
    beside the sidecars before it; and the overhead of its runtime class."""

    def of(container: Mapping[str, Any]) -> Amounts:
        return {name: amount(value) for name, value in container["resources"].get(side, {}).items()}

    sidecars: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers", ()):
        beside = plus(sidecars, of(container))
        if is_sidecar(container):
            sidecars = beside
        most = {name: max(most.get(name, Decimal(0)), each) for name, each in {**most, **beside}.items()}
    together = sidecars
    for container in spec["containers"]:
        together = plus(together, of(container))
    out = {name: max(most.get(name, Decimal(0)), together.get(name, Decimal(0))) for name in {**most, **together}}
    overhead = {name: amount(value) for name, value in spec.get("overhead", {}).items()}
    return plus(out, {name: each for name, each in overhead.items() if side == "requests" or name in out})
