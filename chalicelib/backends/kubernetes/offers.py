"""Offers: what a cluster can give to a request now.

A pod gets what is requested, and no whole node: so an offer has the requested amounts, and there is one for each kind
of node with room for them. The scheduler chooses among the nodes of a kind; an offer that was requested by the name of
a node is of that one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import orjson

from chalicelib.backends.kubernetes.config import ZONE
from chalicelib.backends.kubernetes.devices import AMD, Device, Expression, partition
from chalicelib.backends.kubernetes.facts import FACTS
from chalicelib.backends.kubernetes.nodes import ARCHES, HOSTNAME, TYPE, Node
from chalicelib.backends.kubernetes.pods import INIT_RESOURCES
from chalicelib.backends.kubernetes.quotas import Allowance, PodAmounts
from chalicelib.backends.kubernetes.shown import GIB, number
from chalicelib.backends.kubernetes.usage import PODS
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Availability, ClusterLimit, Disk, InstanceType, Offer, OfferTerms, Resources
from chalicelib.domain.specs.resources import GPUSpec, ResourcesSpec

MIB = 1 << 20
REASONS = 5  # that a refusal gives
NAMED = 5  # nodes that it names for each of them


@dataclass(frozen=True)
class Shape:
    """What a pod requests, and may use at most (0: no limit)."""

    cpus: int
    memory_mib: int
    disk_mib: int
    most_cpus: int
    most_memory_mib: int
    most_disk_mib: int
    gpus: int = 0

    @classmethod
    def of(cls, wanted: ResourcesSpec) -> Shape:
        """The least that meets the request."""
        disk = None if wanted.disk is None else wanted.disk.size
        return cls(
            max(1, wanted.cpu.count.min or 0),
            _mib(wanted.memory.min or min(1.0, wanted.memory.max or 1.0)),
            _mib((disk and disk.min) or 0.0),
            wanted.cpu.count.max or 0,
            _mib(wanted.memory.max or 0.0),
            _mib((disk and disk.max) or 0.0),
        )


def _mib(gib: float) -> int:
    return math.ceil(gib * 1024)


@dataclass(frozen=True)
class Kind:
    """What the nodes that one offer is about have in common."""

    name: str
    arch: str
    shape: Shape
    device: Device | None
    where: tuple[Expression, ...]


class Search:
    """The nodes of one region with room for a request, and why the others have none."""

    def __init__(
        self,
        region: str,
        request: OfferRequest,
        grants: Sequence[str],
        *,
        allowance: Allowance | None = None,
        drivers: Mapping[str, str] | None = None,
        autoscaler: str = "",
    ) -> None:
        """`drivers`: those of nodes, by name, that have devices of DRA. `autoscaler`: the cluster's, if one shows."""
        self._region, self._request, self._grants = region, request, tuple(grants)
        self._allowance, self._drivers, self._autoscaler = allowance or Allowance(), drivers or {}, autoscaler
        self._shape = Shape.of(request.resources)
        self._gpu = request.resources.gpu
        self._kinds: dict[Kind, list[Node]] = {}
        self._lacking: dict[str, list[str]] = {}

    def add(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            found = list(self._fitting(node))
            for kind in found:
                self._kinds.setdefault(kind, []).append(node)

    @property
    def offers(self) -> list[Offer]:
        """Nodes without devices come first for what needs none."""
        kinds = sorted(
            (kind for kind in self._kinds if self._is_large_enough(kind) and not self._refusal(kind)),
            key=lambda kind: (any(n.devices for n in self._kinds[kind]), kind.name, kind.where),
        )
        return [self._offer(kind) for kind in kinds]

    def _is_large_enough(self, kind: Kind) -> bool:
        """Is there room for as many pods as are needed at once?"""
        return self._request.nodes < 2 or self._room(kind) >= self._request.nodes

    def _refusal(self, kind: Kind) -> str:
        """Why the namespace doesn't allow that many; empty if it does."""
        return self._allowance.refusal(self._amounts(kind), self._request.nodes)

    def _amounts(self, kind: Kind) -> PodAmounts:
        shape, context = kind.shape, self._kinds[kind][0].context
        devices = {kind.device.resource: shape.gpus, **context.gpu_resources} if kind.device else {}
        requests = _sizes(shape.cpus, shape.memory_mib, shape.disk_mib) | devices
        return PodAmounts(requests, _sizes(shape.most_cpus, shape.most_memory_mib, shape.most_disk_mib) | devices)

    def _room(self, kind: Kind) -> int:
        """How many pods at once. Where they have to be close together, in the best place for that."""
        topology, places = self._kinds[kind][0].context.cluster_topology, Counter[str]()
        for node in self._kinds[kind]:
            place = node.labels.get(topology.key) if topology.required else ""
            if place is not None:
                places[place] += self._times(node, kind.device, kind.shape)
        return max(places.values(), default=0)

    @property
    def lacking(self) -> list[str]:
        """Why there is no offer: what the namespace doesn't allow, the nodes' most frequent reasons, and how many nodes
        have others."""
        small = {
            f"together room for {self._room(kind)} of the {self._request.nodes} pods{_near(nodes[0])}": [
                node.name for node in nodes
            ]
            for kind, nodes in self._kinds.items()
            if not self._is_large_enough(kind)
        }
        found = sorted([*self._lacking.items(), *small.items()], key=lambda each: -len(each[1]))
        more = len({name for _, names in found[REASONS:] for name in names})
        shown = [f"{_names(names)} ({why})" for why, names in found[:REASONS]]
        refusals = dict.fromkeys(filter(None, map(self._refusal, filter(self._is_large_enough, self._kinds))))
        scaler = f"its autoscaler ({self._autoscaler}) isn't waited for: a job needs a node that has room now"
        return [
            *(f"namespace {self._allowance.namespace} ({why})" for why in refusals),
            *shown,
            *([f"and {more} more node{'s' if more > 1 else ''}"] if more else []),
            *([scaler] if self._autoscaler else []),
        ]

    # --- one node -----------------------------------------------------------------------------------------------------

    def _fitting(self, node: Node) -> Iterator[Kind]:
        why = node.unusable or self._elsewhere(node)
        if why:
            self._note(node, why)
            return
        least = 0 if self._gpu is None else self._gpu.count.min or 0
        kinds = [(None, self._shape)] if not least else list(self._with_devices(node, self._gpu or GPUSpec(), least))
        if least and not kinds:
            self._note(node, self._without_devices(node))
        for device, shape in kinds:
            taint = node.is_kept_for_devices(device.taint if device else "")
            if lacking := f"kept for others by the taint {taint}" if taint else self._short(node, device, shape):
                self._note(node, lacking)
            else:
                yield self._kind(node, device, shape)

    def _elsewhere(self, node: Node) -> str:
        zones = self._request.zones
        if zones is not None and node.labels.get(ZONE, "").lower() not in zones:
            return "not in the requested zones"
        types = self._request.instance_types
        if types is not None and not {node.name.lower(), node.labels.get(TYPE, "").lower()} & set(types):
            return "not of the requested instance types"
        return ""

    def _with_devices(self, node: Node, wanted: GPUSpec, least: int) -> Iterator[tuple[Device, Shape]]:
        for device in node.devices.values():
            if device is None or not _is_wanted(device, wanted):
                continue
            count = least
            if wanted.total_memory is not None and wanted.total_memory.min:
                count = max(count, math.ceil(wanted.total_memory.min * 1024 / device.gpu.memory_mib))
            within = wanted.count.max is None or count <= wanted.count.max
            if within and not (device.share and count > 1):
                yield device, replace(self._shape, gpus=count)

    def _without_devices(self, node: Node) -> str:
        if not node.devices:
            driver = self._drivers.get(node.name)
            return f"only devices of {driver}, a driver of DRA, which jobs can't have" if driver else "no GPUs"
        unknown = [name for name, device in node.devices.items() if device is None]
        if unknown:
            if AMD in unknown and (parts := partition(node.labels)):
                return f"its {AMD} are parts of cards ({parts}): describe them in `accelerators`"
            return f"no label says what its {', '.join(unknown)} is: describe it in `accelerators`"
        return f"only {', '.join(device.gpu.name for device in node.devices.values() if device)}"

    def _needs(self, node: Node, device: Device | None, shape: Shape) -> dict[str, tuple[str, int, int]]:
        """What a pod takes of a node: the resource, how much, and the unit in which that is shown."""
        needs = {
            "CPUs": ("cpu", shape.cpus * 1000, 1000),
            "GB of memory": ("memory", shape.memory_mib * MIB, GIB),
            "GB of disk": ("ephemeral-storage", shape.disk_mib * MIB, GIB),
            "pods": (PODS, 1, 1),
        }
        if device is not None:
            needs[device.gpu.name] = (device.resource, shape.gpus, 1)
            needs |= {name: (name, amount, 1) for name, amount in node.context.gpu_resources.items()}
        return needs

    def _times(self, node: Node, device: Device | None, shape: Shape) -> int:
        """How many such pods the node has room for."""
        needs = self._needs(node, device, shape).values()
        return min(node.free.get(resource, 0) // amount for resource, amount, _ in needs if amount)

    def _short(self, node: Node, device: Device | None, shape: Shape) -> str:
        for what, (resource, amount, unit) in self._needs(node, device, shape).items():
            left, has = node.free.get(resource, 0), node.total.get(resource, 0)
            if left < amount:
                total = f"{number(has / unit)} {what}"
                return f"{number(left / unit)} of {total} free" if has >= amount else f"only {total}"
        return ""

    def _kind(self, node: Node, device: Device | None, shape: Shape) -> Kind:
        where: list[Expression] = [("kubernetes.io/os", "In", ("linux",)), ("kubernetes.io/arch", "In", (node.arch,))]
        where += list(device.where) if device else []
        own = self._request.instance_types is not None and node.name.lower() in self._request.instance_types
        name = node.labels.get(TYPE, "")
        if own:
            where.append((HOSTNAME, "In", (node.labels.get(HOSTNAME, node.name),)))
        elif name:
            where.append((TYPE, "In", (name,)))
        return Kind(node.name if own else name or f"{node.arch}-node", node.arch, shape, device, tuple(where))

    def _note(self, node: Node, why: str) -> None:
        self._lacking.setdefault(why, []).append(node.name)

    # --- an offer -----------------------------------------------------------------------------------------------------

    def _offer(self, kind: Kind) -> Offer:
        shape, device, nodes = kind.shape, kind.device, self._kinds[kind]
        pod: dict[str, Any] = {
            "type": kind.name,
            "where": kind.where,
            "limits": {
                "cpu": shape.most_cpus,
                "memory_mib": shape.most_memory_mib,
                "disk_mib": shape.most_disk_mib,
            },
        }
        if device is not None:
            pod |= {"resource": device.resource, "taint": device.taint}
        limit = ClusterLimit(most=self._room(kind), why="there is room for no more now", hint="wait, or lower `nodes`")
        zones = None
        if self._request.zones is not None:
            zones = tuple(sorted({node.labels[ZONE] for node in nodes}))
        order = sha256(orjson.dumps([pod, kind.arch, vars(shape)])).hexdigest()[:12]
        if (init := self._allowance.init_resources) != INIT_RESOURCES:
            pod["init"] = init
        has = Resources(
            cpus=shape.cpus,
            memory_mib=shape.memory_mib,
            gpus=(device.gpu,) * shape.gpus if device else (),
            disk=Disk(size_mib=shape.disk_mib),
            cpu_arch=ARCHES[kind.arch],
        )
        return Offer(
            backend=FACTS.name,
            instance=InstanceType(name=kind.name, resources=has),
            region=self._region,
            price=0.0,
            terms=OfferTerms.model_validate({"grants": self._grants, "order": order, "pod": pod, "cluster": limit}),
            availability=Availability.available,
            availability_zones=zones,
            instance_runtime="runner",
        )


def _near(node: Node) -> str:
    topology = node.context.cluster_topology
    return f" with one {topology.key}" if topology.required else ""


def _is_wanted(device: Device, wanted: GPUSpec) -> bool:
    """As far as the name, the vendor and the memory tell."""
    name, gib = device.gpu.name.lower().replace(" ", ""), device.gpu.memory_mib / 1024
    if wanted.vendor is not None and wanted.vendor != device.gpu.vendor:
        return False
    if wanted.name is not None and name not in [each.lower().replace(" ", "") for each in wanted.name]:
        return False
    memory = wanted.memory
    return memory is None or ((memory.min or 0) <= gib <= (math.inf if memory.max is None else memory.max))


def _names(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return f"{', '.join(names[:NAMED])}{f' and {more} more' if more > 0 else ''}"


def _sizes(cpus: int, memory_mib: int, disk_mib: int) -> dict[str, int]:
    found = {"cpu": cpus * 1000, "memory": memory_mib * MIB, "ephemeral-storage": disk_mib * MIB}
    return {name: amount for name, amount in found.items() if amount}
