"""Which GPUs a machine has, according to the vendors' tools. Parsers take text; `facts` runs the tools."""

from __future__ import annotations

import csv
import json
import re
from typing import Any, Dict, List, Optional

Gpu = Dict[str, Any]  # name, memory_mib, vendor, driver, id
Usage = Dict[str, int]

NVIDIA = ["nvidia-smi", "--query-gpu=uuid,name,memory.total,driver_version", "--format=csv,noheader,nounits"]
NVIDIA_USE = ["nvidia-smi", "--query-gpu=uuid,memory.used,utilization.gpu", "--format=csv,noheader,nounits"]
AMD = ["amd-smi", "static", "--asic", "--vram", "--driver", "--bus", "--json"]
INTEL = ["hl-smi", "-Q", "name,memory.total,driver_version,bus_id", "-f", "csv,noheader,nounits"]
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


def known(text: Any) -> str:
    text = str(text or "").strip()
    return "" if text.strip("[]").upper() in ("N/A", "UNKNOWN", "NOT SUPPORTED", "") else text


def rows(text: str, columns: int) -> List[List[str]]:
    """The lines of a tool's CSV that have all columns; headers, messages and MIG lines don't."""
    found = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines(), skipinitialspace=True)]
    return [row for row in found if len(row) == columns]


def nvidia(text: str) -> List[Gpu]:
    found: List[Gpu] = []
    for uuid, name, memory, driver in rows(text, 4):
        size = mib(memory)
        if not uuid.startswith("GPU-") or not known(name) or size is None:
            continue  # a header, or a card that doesn't respond and can't take a job
        short = re.sub(r"^(NVIDIA|Tesla)\s+", "", re.sub(r"^NVIDIA\s+", "", name))
        found.append({"name": short, "memory_mib": size, "vendor": "nvidia", "driver": known(driver), "id": uuid})
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
        name = known((card.get("asic") or {}).get("market_name")) if isinstance(card.get("asic"), dict) else ""
        memory = mib(text_size)
        if name and memory is not None:
            driver = known((card.get("driver") or {}).get("version")) if isinstance(card.get("driver"), dict) else ""
            name = re.sub(r"^(AMD\s+)?(Instinct\s+|Radeon\s+)?", "", name).split(" OAM")[0]
            found.append(
                {
                    "name": name,
                    "memory_mib": memory,
                    "vendor": "amd",
                    "driver": driver,
                    "id": str(card.get("gpu", len(found))),
                }
            )
    return found


def intel(text: str) -> List[Gpu]:
    found: List[Gpu] = []
    for name, memory, driver, bus in rows(text, 4):
        size = mib(memory)
        if not known(name) or size is None:
            continue
        model = GAUDI.get(name[:6].upper(), name)
        found.append(
            {
                "name": model,
                "memory_mib": size,
                "vendor": "intel",
                "driver": known(driver),
                "id": known(bus) or str(len(found)),
            }
        )
    return found


def tenstorrent(text: str) -> List[Gpu]:
    """One entry per chip; a chip that hangs has no board type and isn't counted."""
    snapshot = load(text)
    found: List[Gpu] = []
    for number, chip in enumerate(snapshot.get("device_info") or () if isinstance(snapshot, dict) else ()):
        board = chip.get("board_info") if isinstance(chip, dict) else None
        kind = known(board.get("board_type")) if isinstance(board, dict) else ""
        if not kind:
            continue
        name = kind.split()[0].lower()
        memory = next((size for start, size in TENSTORRENT_MIB.items() if name.startswith(start)), 0)
        driver = known((snapshot.get("host_info") or {}).get("Driver", "")).replace("TT-KMD ", "")
        found.append({"name": name, "memory_mib": memory, "vendor": "tenstorrent", "driver": driver, "id": str(number)})
    return found


def nvidia_use(text: str) -> Dict[str, Usage]:
    """Memory and load by GPU id; a value that the card doesn't report (MIG: the load) is 0."""
    found: Dict[str, Usage] = {}
    for uuid, memory, load_percent in rows(text, 3):
        if uuid.startswith("GPU-"):
            percent = load_percent.rstrip(" %")
            found[uuid] = {
                "memory_usage_bytes": (mib(memory) or 0) << 20,
                "util_percent": int(percent) if percent.isdigit() else 0,
            }
    return found


def load(text: str) -> Any:
    """The JSON in a tool's output; some print a notice before it."""
    start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    if start < 0:
        return None
    try:
        return json.loads(text[start:])
    except ValueError:
        return None


TOOLS = (
    ("nvidia", NVIDIA, nvidia),
    ("amd", AMD, amd),
    ("intel", INTEL, intel),
    ("tenstorrent", TENSTORRENT, tenstorrent),
)
