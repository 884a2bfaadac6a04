"""What no test host can have, in the shape that a program would find it: GPUs, another architecture, another engine.

Each function gives a change to a host's disk. The shapes of the vendors' tools are theirs, recorded on real hardware
where that was to be had; no driver, device or card stands behind them.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.hosts.spec import Stub

TOOLS = Path(__file__).with_name("tools")
TABLES = "/usr/share/test-tools"
NVIDIA_MAJOR, UVM_MAJOR = 195, 510
ENGINE_PROGRAMS = ("/usr/sbin/dockerd", "/usr/bin/docker", "/usr/bin/docker-proxy", "/usr/bin/docker-init")
ENGINE_UNITS = ("docker.service", "docker.socket")


def tool(name: str, table: Mapping[str, Any], nodes: Mapping[str, tuple[int, int]] | None = None) -> Stub:
    """A vendor's tool that prints from a table; `tools/gpu_tool.py` says how."""
    program = (TOOLS / "gpu_tool.py").read_text()
    return Stub(
        files={f"/usr/bin/{name}": (program, 0o755), f"{TABLES}/{name}.json": (json.dumps(table, indent=1), 0o644)},
        nodes=nodes or {},
    )


def broken(name: str, output: str, status: int) -> Stub:
    """A tool that is there and always fails: `broken("nvidia-smi", "NVIDIA-SMI has failed because ...", 9)`."""
    return tool(name, {"says": output, "status": status})


def nvidia(*cards: tuple[str, int], mig: Sequence[str] = (), driver: str = "590.48.01") -> Stub:
    """Cards by name and MiB, as ("NVIDIA H200", 143771); `mig`: lines of `-L` below the first card.

    With device nodes, and the hook by which an engine gives GPUs to containers.
    """
    rows = [_nvidia_card(number, name, mib, driver, bool(mig)) for number, (name, mib) in enumerate(cards)]
    lines = []
    for row in rows:
        lines.append(f"GPU {row['index']}: {row['name']} (UUID: {row['uuid']})")
        if row["index"] == 0:
            lines += [f"  {line}" for line in mig]
    listing = "\n".join(lines) or "No devices found."
    apps = "gpu_uuid, pid, process_name, used_gpu_memory [MiB]"
    answers = {"-L": listing, "--list-gpus": listing, "--query-compute-apps": apps, "": _nvidia_table(rows)}
    answers["--help-query-gpu"] = "\n".join(f'"{field}"' for field in (rows[0] if rows else ()))
    made = tool("nvidia-smi", {"rows": rows, "answers": answers})
    hook = {"/usr/bin/nvidia-container-runtime-hook": ((TOOLS / "nvidia_hook.py").read_text(), 0o755)}
    numbered = {f"/dev/nvidia{number}": (NVIDIA_MAJOR, number) for number in range(len(cards))}
    common = {"/dev/nvidiactl": (NVIDIA_MAJOR, 255), "/dev/nvidia-uvm": (UVM_MAJOR, 0)}
    return Stub(files={**made.files, **hook}, nodes={**numbered, **common})


def _nvidia_card(number: int, name: str, mib: int, driver: str, mig: bool) -> dict[str, Any]:
    percent = "[N/A]" if mig else 0
    return {
        "index": number,
        "name": name,
        "gpu_name": name,
        "uuid": f"GPU-{number:08x}-0000-4000-8000-00000000000{number % 10}",
        "gpu_uuid": f"GPU-{number:08x}-0000-4000-8000-00000000000{number % 10}",
        "pci.bus_id": f"00000000:{0x83 + number:02X}:00.0",
        "count": 0,
        "driver_version": driver,
        "compute_cap": "9.0",
        "memory.total": [mib, "MiB"],
        "memory.used": [0, "MiB"],
        "memory.free": [mib - 614, "MiB"],
        "utilization.gpu": [percent, "%"],
        "utilization.memory": [percent, "%"],
        "temperature.gpu": 28,
        "power.draw": ["77.71", "W"],
        "power.limit": ["700.00", "W"],
        "ecc.errors.uncorrected.volatile.total": 0,
        "mig.mode.current": "Enabled" if mig else "Disabled",
        "fan.speed": ["[N/A]", "%"],
        "pstate": "P0",
    }


def _nvidia_table(rows: Sequence[Mapping[str, Any]]) -> str:
    driver = rows[0]["driver_version"] if rows else ""
    return "\n".join([f"NVIDIA-SMI {driver}", *(f"|  {row['index']}  {row['name']}" for row in rows)])


def amd(*cards: tuple[str, int], wrapped: bool = True) -> Stub:
    """Cards by name and MiB, as ("AMD Instinct MI300X", 196592). `wrapped`: as ROCm 7 prints them, else as before it.

    With rocm-smi, whose values are texts.
    """
    static = [
        {
            "gpu": number,
            "asic": {
                "market_name": name,
                "vendor_id": "0x1002",
                "device_id": "0x74a1",
                "asic_serial": f"0x{number:016X}",
                "target_graphics_version": "gfx942",
            },
            "bus": {"bdf": f"0000:{5 + number:02x}:00.0"},
            "vram": {"type": "HBM3", "size": {"value": mib, "unit": "MB"}},
            "driver": {"name": "amdgpu", "version": "6.10.5"},
        }
        for number, (name, mib) in enumerate(cards)
    ]
    metric = [
        {
            "gpu": number,
            "usage": {"gfx_activity": {"value": 0, "unit": "%"}, "umc_activity": "N/A"},
            "mem_usage": {"total_vram": {"value": mib, "unit": "MB"}, "used_vram": {"value": 283, "unit": "MB"}},
        }
        for number, (_, mib) in enumerate(cards)
    ]
    monitor = ["gpu,gfx,gfx_clock,vram_used,vram_total", *(f"{n},0,132,283,{mib}" for n, (_, mib) in enumerate(cards))]
    answers = {
        "static": json.dumps({"gpu_data": static} if wrapped else static, indent=4),
        "metric": json.dumps({"gpu_data": metric} if wrapped else metric, indent=4),
        "monitor": "\n".join(monitor),
    }
    rocm = {
        f"card{number}": {
            "GPU use (%)": "0",
            "VRAM Total Memory (B)": str(mib << 20),
            "VRAM Total Used Memory (B)": str(283 << 20),
            "Card Series": name,
            "Unique ID": f"0x{number:016x}",
        }
        for number, (name, mib) in enumerate(cards)
    }
    return _together(
        tool("amd-smi", {"answers": answers}, {"/dev/kfd": (509, 0)}),
        tool("rocm-smi", {"answers": {"": json.dumps(rocm)}}),
    )


def gaudi(count: int, name: str = "HL-225", mib: int = 98304) -> Stub:
    rows = [
        {
            "index": number,
            "module_id": number,
            "name": name,
            "uuid": f"01P4-{number:04d}",
            "serial": f"AM{number:08d}",
            "bus_id": f"0000:{0x19 + number:02x}:00.0",
            "driver_version": "1.22.1-97ec1a4",
            "memory.total": [mib, "MiB"],
            "memory.used": [672, "MiB"],
            "memory.free": [mib - 672, "MiB"],
            "utilization.aip": [0, "%"],
            "temperature.aip": [36, "C"],
            "power.draw": [226, "W"],
        }
        for number in range(count)
    ]
    nodes = {f"/dev/accel/accel{number}": (508, number) for number in range(count)}
    return tool("hl-smi", {"rows": rows, "answers": {}}, nodes)


def tenstorrent(*boards: str) -> Stub:
    """Boards by type, as "n150 L"; an n300 has two chips: "n300 L", then "n300 R" without an address."""
    chips = [
        {
            "board_info": {
                "bus_id": "N/A" if board.endswith(" R") else f"0000:{number + 1:02x}:00.0",
                "board_type": board,
                "board_id": f"1000186119020{number - board.endswith(' R'):02d}",
                "dram_status": True,
            },
            "telemetry": {"voltage": "0.80", "power": " 12.0", "aiclk": " 500", "asic_temperature": "54.3"},
            "smbus_telem": {"DDR_STATUS": "0x2222222", "FAULTS": None},
            "firmwares": {"fw_bundle_version": "80.17.0.0"},
        }
        for number, board in enumerate(boards)
    ]
    snapshot = {"host_info": {"OS": "Linux", "Driver": "TT-KMD 1.33"}, "device_info": chips}
    nodes = {f"/dev/tenstorrent/{number}": (507, number) for number in range(len(boards))}
    return tool("tt-smi", {"answers": {"-s": json.dumps(snapshot, indent=4)}}, nodes)


def _together(*stubs: Stub) -> Stub:
    files = {path: content for stub in stubs for path, content in stub.files.items()}
    return Stub(files=files, nodes={path: number for stub in stubs for path, number in stub.nodes.items()})


def architecture(machine: str) -> Stub:
    """`aarch64` and the like: what `uname -m` prints, and nothing else is deceived. i686: what the kernel says."""
    if machine == "i686":
        return Stub(personality="x86")
    script = f'#!/bin/sh\nPATH=/usr/bin\ncase "$*" in -m|-p|-i) echo {machine} ;; *) exec uname "$@" ;; esac\n'
    return Stub(files={"/usr/local/bin/uname": (script, 0o755)})


def no_engine() -> Stub:
    return Stub(gone=(*ENGINE_PROGRAMS, *(f"/lib/systemd/system/{unit}" for unit in ENGINE_UNITS), "/etc/docker"))


def engine_version(reported: str) -> Stub:
    """The engine that is there under another version, of as many characters: "19.03.15+dfsg1" over its API and its CLI.

    The number is replaced in the programs themselves, so whoever asks is told it; what they do stays the same.
    """
    output = subprocess.run(["/usr/sbin/dockerd", "--version"], capture_output=True, text=True, check=True).stdout
    real = re.search(r"version ([^,]+),", output)
    assert real, output
    change = (real[1].encode(), reported.encode())
    return Stub(edits={"/usr/sbin/dockerd": change, "/usr/bin/docker": change})


def clock(offset: str, *units: str) -> Stub:
    """`offset` as faketime writes it, "+90d": the time that SSH sessions and these units of the host read.

    The kernel's clock is one for all hosts. So a library stands before the C library's calls, in the environment that a
    login or a unit starts with. What escapes: systemd itself, programs without a C library (the engine, static ones),
    whatever clears its environment (sudo), the times of files and of the journal.
    """
    library = Path(f"/usr/lib/{platform.machine()}-linux-gnu/faketime/libfaketime.so.1")  # where Debian has it
    pairs = {"LD_PRELOAD": str(library), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    setting = " ".join(f'"{name}={value}"' for name, value in pairs.items())
    files = {"/etc/environment": "".join(f"{name}={value}\n" for name, value in pairs.items())}
    for unit in units:
        files[f"/etc/systemd/system/{unit}.d/clock.conf"] = f"[Service]\nEnvironment={setting}\n"
    return Stub(files={path: (text, 0o644) for path, text in files.items()})
