"""A machine's GPUs and their usage, parsed from the output of the vendors' tools. `inventory` runs the tools."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from ..kernel.lazy import LazyModule

if TYPE_CHECKING:
    import csv
else:
    csv = LazyModule("csv")

Gpu = Dict[str, Any]  # name, memory_mib, vendor, driver, id; bus (the PCI address) if devices are found by it
Usage = Dict[str, int]

NVIDIA = ["nvidia-smi", "--query-gpu=uuid,name,memory.total,driver_version", "--format=csv,noheader,nounits"]
NVIDIA_USAGE = ["nvidia-smi", "--query-gpu=uuid,memory.used,utilization.gpu", "--format=csv,noheader,nounits"]
AMD = ["amd-smi", "static", "--asic", "--vram", "--driver", "--bus", "--json"]
AMD_USAGE = ["amd-smi", "metric", "--usage", "--mem-usage", "--json"]
INTEL = ["hl-smi", "-Q", "name,memory.total,driver_version,bus_id", "-f", "csv,noheader,nounits"]
INTEL_USAGE = ["hl-smi", "-Q", "bus_id,memory.used,utilization.aip", "-f", "csv,noheader,nounits"]
TENSTORRENT = ["tt-smi", "-s"]

TENSTORRENT_MIB = {
    "n150": 12 * 1024,
    "n300": 12 * 1024,
    "p100": 28 * 1024,
    "p150": 32 * 1024,
    "p300": 32 * 1024,
    "e75": 8 * 1024,
    "e150": 8 * 1024,
}
GAUDI = {"HL-205": "Gaudi", "HL-225": "Gaudi2", "HL-325": "Gaudi3", "HL-328": "Gaudi3"}


def mib(text: Any) -> Optional[int]:
    """`81559`, `81559 MiB`, `80 GB` as MiB; None for N/A and the like."""
    match = re.match(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?i?B)?\s*$", str(text), re.IGNORECASE)
    if not match:
        return None
    scale = {"K": 1 / 1024, "G": 1024, "T": 1024 * 1024}.get((match.group(2) or "M")[0].upper(), 1)
    return int(float(match.group(1)) * scale)


def count(text: Any) -> int:
    """A number of errors; 0 if the tool doesn't know it."""
    return int(text) if str(text).isdigit() else 0


def value_of(text: Any) -> str:
    """A tool's value; empty for `N/A` and the like."""
    text = str(text or "").strip()
    return "" if text.strip("[]").upper() in ("N/A", "UNKNOWN", "NOT SUPPORTED", "") else text


def bus_of(text: Any) -> str:
    """A PCI address as the kernel writes it, `0000:05:00.0`: tools vary in case and digits. Empty if it is none."""
    match = re.match(r"\s*(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\s*$", str(text), re.IGNORECASE)
    return ("%04x:%s" % (int(match.group(1) or "0", 16), match.group(2))).lower() if match else ""


def rows(text: str, columns: int) -> List[List[str]]:
    """The rows of a tool's CSV with this many columns, without headers, messages and MIG lines."""
    found = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines(), skipinitialspace=True)]
    return [row for row in found if len(row) == columns]


def nvidia(text: str) -> List[Gpu]:
    found: List[Gpu] = []
    for uuid, name, memory, driver in rows(text, 4):
        size = mib(memory)
        if not uuid.startswith("GPU-") or not value_of(name) or size is None:
            continue  # a header, or a card that doesn't respond and can't take a job
        short = re.sub(r"^(NVIDIA|Tesla)\s+", "", re.sub(r"^NVIDIA\s+", "", name))
        found.append({"name": short, "memory_mib": size, "vendor": "nvidia", "driver": value_of(driver), "id": uuid})
    return found


def amd(text: str) -> List[Gpu]:
    cards = load(text)
    if isinstance(cards, dict):
        cards = cards.get("gpu_data")
    found: List[Gpu] = []
    for card in cards if isinstance(cards, list) else ():
        if not isinstance(card, dict):
            continue
        vram = card.get("vram") if isinstance(card.get("vram"), dict) else {}
        size = vram.get("size", vram.get("vram_size")) if isinstance(vram, dict) else None
        text_size = "%s %s" % (size.get("value"), size.get("unit") or "MB") if isinstance(size, dict) else size
        name = value_of((card.get("asic") or {}).get("market_name")) if isinstance(card.get("asic"), dict) else ""
        memory = mib(text_size)
        if name and memory is not None:
            driver = value_of((card.get("driver") or {}).get("version")) if isinstance(card.get("driver"), dict) else ""
            name = re.sub(r"^(AMD\s+)?(Instinct\s+|Radeon\s+)?", "", name).split(" OAM")[0]
            found.append(
                {
                    "name": name,
                    "memory_mib": memory,
                    "vendor": "amd",
                    "driver": driver,
                    "id": str(card.get("gpu", len(found))),
                    "bus": bus_of((card.get("bus") or {}).get("bdf")) if isinstance(card.get("bus"), dict) else "",
                }
            )
    return found


def intel(text: str) -> List[Gpu]:
    found: List[Gpu] = []
    for name, memory, driver, bus in rows(text, 4):
        size = mib(memory)
        if not value_of(name) or size is None:
            continue
        model = GAUDI.get(name[:6].upper(), name)
        found.append(
            {
                "name": model,
                "memory_mib": size,
                "vendor": "intel",
                "driver": value_of(driver),
                "id": value_of(bus) or str(len(found)),
                "bus": bus_of(bus),
            }
        )
    return found


def tenstorrent(text: str) -> List[Gpu]:
    """One GPU per board: a chip without a PCI address of its own is reached through the board's other chip, so a job
    gets both. A chip that hangs has no board type and isn't counted."""
    snapshot = load(text)
    if not isinstance(snapshot, dict):
        return []
    found: List[Gpu] = []
    boards: Dict[str, Gpu] = {}
    for number, chip in enumerate(snapshot.get("device_info") or ()):
        board = chip.get("board_info") if isinstance(chip, dict) else None
        if not isinstance(board, dict) or not value_of(board.get("board_type")):
            continue
        kind = value_of(board["board_type"])
        name = kind.split()[0].lower()
        memory = next((size for start, size in TENSTORRENT_MIB.items() if name.startswith(start)), 0)
        bus, serial = bus_of(board.get("bus_id")), value_of(board.get("board_id"))
        if not bus and serial in boards:
            boards[serial]["memory_mib"] += memory
            continue
        driver = value_of((snapshot.get("host_info") or {}).get("Driver", "")).replace("TT-KMD ", "")
        gpu = {"name": name, "memory_mib": memory, "vendor": "tenstorrent", "driver": driver, "id": str(number)}
        found.append(dict(gpu, bus=bus))
        boards[serial] = found[-1]
    return found


def usage(memory: Any, percent: Any) -> Usage:
    """A card's usage. A value that the card doesn't report, as with MIG, is absent, not 0."""
    found: Usage = {}
    size, busy = mib(memory), str(percent).rstrip(" %")
    if size is not None:
        found["memory_usage_bytes"] = size << 20
    if busy.isdigit():
        found["util_percent"] = min(100, int(busy))
    return found


def nvidia_usage(text: str) -> Dict[str, Usage]:
    """Memory and utilisation by GPU id."""
    return {uuid: usage(memory, busy) for uuid, memory, busy in rows(text, 3) if uuid.startswith("GPU-")}


def intel_usage(text: str) -> Dict[str, Usage]:
    return {bus: usage(memory, busy) for bus, memory, busy in rows(text, 3) if value_of(bus)}


def amd_usage(text: str) -> Dict[str, Usage]:
    cards = load(text)
    if isinstance(cards, dict):
        cards = cards.get("gpu_data")
    found: Dict[str, Usage] = {}
    for number, card in enumerate(cards if isinstance(cards, list) else ()):
        if isinstance(card, dict):
            memory = field_of(card.get("mem_usage"), "used_vram")
            found[str(card.get("gpu", number))] = usage(memory, field_of(card.get("usage"), "gfx_activity"))
    return found


def field_of(block: Any, name: str) -> Any:
    """A value in amd-smi's output: `{value, unit}` or a plain number; the block or the value may be `N/A`."""
    value = block.get(name) if isinstance(block, dict) else None
    return value.get("value") if isinstance(value, dict) else value


def load(text: str) -> Any:
    """The JSON in a tool's output; some print a notice before it."""
    start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    if start < 0:
        return None
    try:
        return json.loads(text[start:])
    except ValueError:
        return None


USAGE_TOOLS = {
    "nvidia": (NVIDIA_USAGE, nvidia_usage),
    "amd": (AMD_USAGE, amd_usage),
    "intel": (INTEL_USAGE, intel_usage),
}
TOOLS = (
    ("nvidia", NVIDIA, nvidia),
    ("amd", AMD, amd),
    ("intel", INTEL, intel),
    ("tenstorrent", TENSTORRENT, tenstorrent),
)
