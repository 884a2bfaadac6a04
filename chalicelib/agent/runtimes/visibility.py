"""The GPUs that a task sees: its own and no other, by vendor.

A container gets device nodes, directly or through the vendor's container runtime. A plain process gets the variables
that the vendor's libraries obey; a process that ignores them still sees every card that its user may open.

A card is found by its PCI address, under which the kernel lists the card's device nodes. The numbers of nodes and those
of tools need not agree (a machine's first card may be its display), so no node is guessed.
"""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

from ..kernel.records import record
from ..kernel.task_runtime import TaskError

if TYPE_CHECKING:
    from ...contract.agent import HostGpu
    from ..kernel.tasks import LaunchedTask

NVIDIA_CAPABILITIES = ["gpu", "utility", "compute", "graphics", "video"]
SHARED_MEMORY = 16 << 30  # an upper limit; GPU libraries communicate through it, and it is the container's memory
HUGE_PAGES = "/dev/hugepages-1G"
KFD = "/dev/kfd"
VFIO = "/dev/vfio/vfio"
NONE = "-1"  # no card has this number, so a list that starts with it is empty

# vendor → the pattern of a card's node below its PCI device in /sys, and the node's path
NODES = {
    "amd": ("drm/renderD*", "/dev/dri/%s"),
    "intel": ("accel/accel*", "/dev/accel/%s"),
    "tenstorrent": ("tenstorrent/tenstorrent!*", "/dev/%s"),
}


@record(frozen=True)
class TaskCards:
    """The cards given to a task. `vendor` is that of the machine's cards, empty if it has none."""

    vendor: str
    ids: List[str]
    buses: Sequence[str] = ()  # PCI addresses, in the order of `ids`
    root: str = "/"

    def nodes(self) -> List[str]:
        if len(self.buses) != len(self.ids) or not all(self.buses):
            raise not_found("the PCI address of each card isn't known", self.vendor)
        if self.vendor == "google":
            return [self._node_of_chip(bus) for bus in self.buses]
        below, place = NODES[self.vendor]
        return [place % self._listed(bus, below).replace("!", "/") for bus in self.buses]

    def numbers(self) -> List[str]:
        """The numbers of the nodes, which the vendor's libraries use."""
        return [node[len(node.rstrip("0123456789")) :] for node in self.nodes()]

    def _node_of_chip(self, bus: str) -> str:
        """A TPU chip's own node up to v4, and the one of its IOMMU group since v5."""
        device = os.path.join(self.root, "sys/bus/pci/devices", bus.lower())
        own = glob.glob(os.path.join(glob.escape(device), "accel/accel*"))
        if own:
            return "/dev/" + os.path.basename(own[0])
        group = os.path.join(device, "iommu_group")
        if not os.path.islink(group):
            raise not_found("%s has neither an accel device nor an IOMMU group" % device, self.vendor)
        return "/dev/vfio/" + os.path.basename(os.readlink(group))

    def _listed(self, bus: str, below: str) -> str:
        device = os.path.join(self.root, "sys/bus/pci/devices", bus.lower())
        found = sorted(glob.glob(os.path.join(glob.escape(device), below)))
        if not found:
            raise not_found("%s has no %s" % (device, below), self.vendor)
        return os.path.basename(found[0])

    def groups(self, nodes: List[str]) -> List[str]:
        """The groups that may open these nodes, as numbers, because an image need not have `render` or `video`."""
        found = {os.stat(os.path.join(self.root, node.lstrip("/"))).st_gid for node in nodes if self._exists(node)}
        return [str(gid) for gid in sorted(found - {0})]

    def _exists(self, path: str) -> bool:
        return os.path.exists(os.path.join(self.root, path.lstrip("/")))


def cards_of(spec: LaunchedTask, ids: Sequence[str]) -> TaskCards:
    """A task's cards, from its spec and the ids that the agent chose."""
    return TaskCards(spec.get("gpu_vendor") or ("nvidia" if ids else ""), list(ids), spec.get("gpu_buses") or [])


def not_found(reason: str, vendor: str) -> TaskError:
    return TaskError(
        "executor_error", "the %s cards of this job can't be found: %s; is the driver loaded?" % (vendor, reason)
    )


def container_settings(cards: TaskCards, privileged: bool) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """Parts of the engine's HostConfig, and the variables that control the vendor's container runtime. Images and users
    may set those, too, so they are always set, even without cards."""
    if cards.vendor == "nvidia":
        if not cards.ids:
            return {}, {"NVIDIA_VISIBLE_DEVICES": "void"}
        request = {"DeviceIDs": cards.ids, "Capabilities": [NVIDIA_CAPABILITIES]}
        return {"DeviceRequests": [request]}, {"NVIDIA_VISIBLE_DEVICES": ",".join(cards.ids)}
    if not cards.ids:
        return {}, {"HABANA_VISIBLE_DEVICES": "void"} if cards.vendor == "intel" else {}
    host = dict(_vendors(cards), **({"IpcMode": "host"} if privileged else {"ShmSize": SHARED_MEMORY}))
    return host, {"HABANA_VISIBLE_DEVICES": ",".join(cards.numbers())} if cards.vendor == "intel" else {}


def _vendors(cards: TaskCards) -> Dict[str, Any]:
    if cards.vendor == "amd":
        nodes = [KFD, *cards.nodes()]
        settings = {"Devices": devices(nodes), "CapAdd": ["SYS_PTRACE"], "SecurityOpt": ["seccomp=unconfined"]}
        return dict(settings, GroupAdd=cards.groups(nodes))
    if cards.vendor == "intel":
        return {"Runtime": "habana", "CapAdd": ["SYS_NICE"]}
    if cards.vendor == "tenstorrent":
        nodes = cards.nodes()
        pages = {"Binds": ["%s:%s" % (HUGE_PAGES, HUGE_PAGES)]} if cards._exists(HUGE_PAGES) else {}
        return dict(pages, Devices=devices(nodes), GroupAdd=cards.groups(nodes))
    if cards.vendor == "google":
        nodes = cards.nodes()
        if any(node.startswith("/dev/vfio/") for node in nodes):
            nodes.append(VFIO)
        # Chips write to the memory of programs, which lock it.
        rights = {"CapAdd": ["IPC_LOCK", "SYS_RESOURCE"], "GroupAdd": cards.groups(nodes)}
        return dict(rights, Devices=devices(nodes))
    raise TaskError("executor_error", "containers can't be given cards of %s" % cards.vendor)


def devices(nodes: List[str]) -> List[Dict[str, str]]:
    return [{"PathOnHost": node, "PathInContainer": node, "CgroupPermissions": "rwm"} for node in nodes]


def process_variables(cards: TaskCards) -> Dict[str, str]:
    """The variables of a plain process. Users may override them, among the cards that their processes may open."""
    if cards.vendor == "nvidia":
        return {"CUDA_VISIBLE_DEVICES": ",".join(cards.ids) or NONE}
    if cards.vendor == "amd":  # HIP numbers the cards that ROCR shows
        indices = ",".join(str(number) for number in range(len(cards.ids)))
        return {"ROCR_VISIBLE_DEVICES": ",".join(cards.ids) or NONE, "HIP_VISIBLE_DEVICES": indices or NONE}
    if cards.vendor == "intel":
        numbers = cards.numbers() if cards.ids else []
        variables = {"HABANA_VISIBLE_DEVICES": ",".join(numbers) or NONE}
        modules = [module_of(cards.root, number) for number in numbers]
        return dict(variables, HABANA_VISIBLE_MODULES=",".join(modules)) if modules and all(modules) else variables
    if cards.vendor == "tenstorrent":
        return {"TT_VISIBLE_DEVICES": ",".join(cards.numbers() if cards.ids else []) or NONE}
    if cards.vendor == "google":  # all chips of a machine are for one task
        return {"PJRT_DEVICE": "TPU" if cards.ids else "CPU"}
    return {}


def module_of(root: str, number: str) -> str:
    """A Gaudi's number on its board, which its library uses outside containers; empty if the driver is too old."""
    try:
        with open(os.path.join(root, "sys/class/accel", "accel" + number, "device/module_id")) as file:
            return file.read().strip()
    except OSError:
        return ""


def buses_of(ids: List[str], gpus: Sequence[HostGpu]) -> List[str]:
    """The PCI addresses of the machine's cards with these ids; an empty text for one that isn't known."""
    buses = {gpu["id"]: str(gpu.get("bus") or "") for gpu in gpus}
    return [buses.get(name, "") for name in ids]
