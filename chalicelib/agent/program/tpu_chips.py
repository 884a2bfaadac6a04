"""Google's TPU chips, which are found by their PCI devices: their machines have no tool that names them.

A slice has the name that it is sold under, as in `gpu: v5litepod-4`: some are called by their number of chips, and
others by their number of cores, of which a chip has two.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List

VENDOR = "0x1ae0"
# PCI device → name, MiB of a chip, and what the name counts of each chip
CHIPS = {
    "0x005e": ("v4", 32 << 10, 2),
    "0x0062": ("v5p", 95 << 10, 2),
    "0x0063": ("v5litepod", 16 << 10, 1),
    "0x006f": ("v6e", 32 << 10, 1),
}
OLD = "0x0027"  # of these, the subsystem says which one it is
SUBSYSTEMS = {"0x004e": ("v2", 16 << 10, 2), "0x004f": ("v3", 32 << 10, 2)}
DEVICES = "sys/bus/pci/devices"


def chips(root: str) -> List[Dict[str, Any]]:
    folder = os.path.join(root, DEVICES)
    try:
        buses = sorted(os.listdir(folder))
    except OSError:
        return []
    found = []
    for bus in buses:
        device = os.path.join(folder, bus)
        if _read(device, "vendor") == VENDOR:
            kind = _read(device, "device")
            known = SUBSYSTEMS.get(_read(device, "subsystem_device")) if kind == OLD else CHIPS.get(kind)
            if known:
                found.append((bus, known))
    return [
        {
            "name": "%s-%d" % (name, len(found) * counted),
            "memory_mib": memory,
            "vendor": "google",
            "driver": "",
            "id": str(number),
            "bus": bus,
        }
        for number, (bus, (name, memory, counted)) in enumerate(found)
    ]


def _read(device: str, name: str) -> str:
    try:
        with open(os.path.join(device, name)) as file:
            return file.read().strip().lower()
    except OSError:
        return ""
