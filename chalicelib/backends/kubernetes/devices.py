"""GPUs and other accelerators of nodes: the resource names of the vendors' device plugins, and the labels that say
which devices they are.

A share of a card, which is a MIG slice or a card that several pods use in turns, isn't offered under the card's name,
and only one at a time: two shares are no two cards, and may be of one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.backends.kit.gpus import GIB, gpu
from chalicelib.backends.kubernetes.config import KubernetesAccelerator
from chalicelib.backends.kubernetes.quantities import parsed
from chalicelib.domain.offers import Gpu

Labels = Mapping[str, str]
Expression = tuple[str, str, tuple[str, ...]]  # of a node affinity: a label's key, the operator, values

NVIDIA, AMD, GAUDI, TPU = "nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "google.com/tpu"
FAMILIES = (NVIDIA, AMD, GAUDI, TPU)  # taints with these keys keep away pods without such devices
_VENDORS = ("nvidia.com/", "amd.com/", "habana.ai/", "google.com/tpu", "gpu.intel.com/", "tenstorrent.com/")
_NOT_DEVICES = re.compile(r"nvidia\.com/(?!gpu|mig-)|amd\.com/.*nic|gpu\.intel\.com/(?!i915|xe)")
_PRODUCT, _MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"
_GKE, _GKE_TPU, _GKE_TOPOLOGY = (
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-tpu-accelerator",
    "cloud.google.com/gke-tpu-topology",
)
_EKS = "k8s.amazonaws.com/accelerator"
_MIG = re.compile(r"mig-(\d+)g\.(\d+)gb(\.\w+)?")
_MIG_PRODUCT = re.compile(r"(.*)-MIG-(\d+)g\.(\d+)gb((?:\+|\.)\w+)?")
_AMD_IDS: Mapping[str, tuple[str, int]] = {  # PCI device ids, and GB
    "7408": ("MI250X", 64),  # one of the two dies of a card, each of which is a device
    "740c": ("MI250X", 64),
    "740f": ("MI210", 64),
    "74a0": ("MI300A", 128),
    "74a1": ("MI300X", 192),
    "74a5": ("MI325X", 256),
    "75a0": ("MI350X", 288),
    "75a3": ("MI355X", 288),
}
_TPUS: Mapping[str, tuple[str, int]] = {  # and GB of a chip
    "tpu-v4-podslice": ("v4", 32),
    "tpu-v5-lite-device": ("v5litepod", 16),
    "tpu-v5-lite-podslice": ("v5litepod", 16),
    "tpu-v5p-slice": ("v5p", 95),
    "tpu-v6e-slice": ("v6e", 32),
}


@dataclass(frozen=True)
class Device:
    """A kind of device of a node."""

    resource: str
    gpu: Gpu
    where: tuple[Expression, ...]  # what the nodes with such devices have in common
    share: bool = False

    @property
    def taint(self) -> str:
        """The key of the taint by which such nodes are kept for those who need the devices."""
        return next((each for each in FAMILIES if each.partition("/")[0] == self.resource.partition("/")[0]), "")


def resources_of(allocatable: Mapping[str, Any]) -> list[str]:
    """The resources of a node that are devices."""
    return sorted(name for name in allocatable if name.startswith(_VENDORS) and not _NOT_DEVICES.match(name))


def device(resource: str, labels: Labels, accelerators: Sequence[KubernetesAccelerator] = ()) -> Device | None:
    """What the resource is on a node with these labels. None: nobody says."""
    for each in accelerators:
        if each.resource == resource and each.node_selector.items() <= labels.items():
            where = tuple((key, "In", (value,)) for key, value in each.node_selector.items())
            card = Gpu(name=each.name, memory_mib=round(each.memory * GIB), vendor=each.vendor)
            return Device(resource, card, where)
    return next((found for find in (_nvidia, _amd, _tpu) for found in find(resource, labels)), None)


# --- NVIDIA -----------------------------------------------------------------------------------------------------------


def _nvidia(resource: str, labels: Labels) -> Iterator[Device]:
    if not resource.startswith("nvidia.com/"):
        return
    product = labels.get(_PRODUCT, "")
    mixed = _MIG.fullmatch(resource.removeprefix("nvidia.com/"))
    single = _MIG_PRODUCT.fullmatch(product.removesuffix("-SHARED"))
    where: tuple[Expression, ...] = ((_PRODUCT, "In", (product,)),)
    if mixed and product:
        yield _slice(resource, product, mixed.groups(), where)
    elif single:
        part = _slice(resource, single[1], single.groups()[1:], where)
        yield _shared(part, labels) if resource == f"{NVIDIA}.shared" or _is_shared(labels) else part
    elif resource == f"{NVIDIA}.shared" or _is_shared(labels):
        if card := gpu(product.removesuffix("-SHARED"), _mib(labels), "nvidia"):
            yield _shared(Device(resource, card, where), labels)
    elif resource == NVIDIA and product:
        if card := gpu(product, _mib(labels), "nvidia"):
            yield Device(resource, card, where)
    elif resource == NVIDIA:
        yield from _by_clouds_label(labels)


def _shared(whole: Device, labels: Labels) -> Device:
    """The part of one of those that use it in turns."""
    users, card = max(1, int(labels.get("nvidia.com/gpu.replicas", "1") or 1)), whole.gpu
    part = card.with_(name=f"{card.name}-SHARED", memory_mib=max(GIB, card.memory_mib // users))
    return replace(whole, gpu=part, share=True)


def _mib(labels: Labels) -> int:
    text = labels.get(_MEMORY, "")
    return int(text) if text.isdecimal() else 0


def _is_shared(labels: Labels) -> bool:
    if labels.get("nvidia.com/gpu.sharing-strategy", "none") == "none" and "-SHARED" not in labels.get(_PRODUCT, ""):
        return False
    return labels.get("nvidia.com/gpu.replicas", "1") not in ("", "0", "1")


def _slice(resource: str, product: str, profile: Sequence[str | None], where: tuple[Expression, ...]) -> Device:
    parts, gib, attribute = profile
    card = gpu(product, GIB, "nvidia")  # for its name: the slice has its own part of the memory
    name = f"{card.name if card else product}-{parts}g.{gib}gb{(attribute or '').replace('+', '.')}"
    return Device(resource, Gpu(name=name, memory_mib=int(gib or 0) * GIB, vendor="nvidia"), where, share=True)


def _by_clouds_label(labels: Labels) -> Iterator[Device]:
    """Where GPU feature discovery doesn't run, clouds have labels of their own."""
    for label in (_GKE, _EKS):
        name = labels.get(label, "")
        mib = 40 * GIB if name == "nvidia-tesla-a100" else 0  # of 80 GB it would have another name
        if name and (card := gpu(name, mib, "nvidia")):
            yield Device(NVIDIA, card, ((label, "In", (name,)),))
            return


# --- others -----------------------------------------------------------------------------------------------------------


def _amd(resource: str, labels: Labels) -> Iterator[Device]:
    """By the label that every version of AMD's labeller writes; one for each model, so there must be one."""
    if resource != AMD or partition(labels):
        return
    prefix = "beta.amd.com/gpu.device-id."
    ids = {key.removeprefix(prefix): key for key in labels if key.startswith(prefix)}
    plain = {labels[key]: key for key in ("amd.com/gpu.device-id", "beta.amd.com/gpu.device-id") if key in labels}
    if len(ids) > 1:
        return
    for identity, key in (ids or plain).items():
        where: Expression = (key, "Exists", ()) if ids else (key, "In", (identity,))
        if known := _AMD_IDS.get(identity.lower()):
            yield Device(AMD, Gpu(name=known[0], memory_mib=known[1] * GIB, vendor="amd"), (where,))
            return
    for family in ("amd.com/gpu", "beta.amd.com/gpu"):
        name, vram = labels.get(f"{family}.product-name", ""), labels.get(f"{family}.vram", "")
        if name and vram and (card := gpu(name, _vram(vram), "amd")):
            yield Device(AMD, card, ((f"{family}.product-name", "In", (name,)),))
            return


def partition(labels: Labels) -> str:
    """How AMD cards are divided, if each of their parts is a device; empty if each device is a whole card."""
    for name in ("amd.com/gpu.compute-memory-partition", "beta.amd.com/gpu.compute-memory-partition"):
        found = [
            value if key == name else key.removeprefix(f"{name}.")
            for key, value in labels.items()
            if key == name or key.startswith(f"{name}.")
        ]
        if parts := [each for each in found if not each.lower().startswith("spx")]:
            return ", ".join(parts)
    return ""


def _vram(text: str) -> int:
    try:
        return int(parsed(f"{text}i" if text.endswith("G") else text) / (1 << 20))
    except ValueError:
        return 0


def _tpu(resource: str, labels: Labels) -> Iterator[Device]:
    known = _TPUS.get(labels.get(_GKE_TPU, "")) if resource == TPU else None
    if known:
        where: tuple[Expression, ...] = tuple(
            (key, "In", (labels[key],)) for key in (_GKE_TPU, _GKE_TOPOLOGY) if key in labels
        )
        yield Device(TPU, Gpu(name=known[0], memory_mib=known[1] * GIB, vendor="google"), where)
