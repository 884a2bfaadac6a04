"""Facts of other machines: their files and their tools' output are inputs."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.program import gpu_tools
from chalicelib.agent.program.inventory import Inventory, addresses, default_address, interfaces, run_tool


class Tools:
    """What a machine's tools answer, by the tool's name; any other is absent."""

    def __init__(self, **answers: tuple[int, str]) -> None:
        self.answers = {name.replace("_", "-"): answer for name, answer in answers.items()}

        self.calls: list[list[str]] = []

    def __call__(self, argv: list[str]) -> tuple[int, str]:
        self.calls.append(argv)
        return self.answers.get(argv[0], (127, ""))


def machine(root: Path, tools: Tools | None = None, **files: str) -> Inventory:
    for name, text in {
        "proc/meminfo": "MemTotal:       16384000 kB\n",
        "proc/cpuinfo": "processor\t: 0\n" * 8,
        **files,
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Inventory(str(root), tools or Tools(), str(root))


def test_a_machine_without_limits(tmp_path: Path) -> None:
    found = machine(tmp_path, **{"proc/self/cgroup": "0::/\n"})
    assert (found.cpus(), found.memory_mib()) == (8, 16000)


@pytest.mark.parametrize(
    ("cgroup", "files", "cpus", "memory"),
    [
        ("0::/job\n", {"job/cpu.max": "150000 100000", "job/memory.max": str(2 << 30)}, 1, 2048),
        ("0::/a/b\n", {"a/cpu.max": "max 100000", "a/memory.max": "max", "a/b/memory.max": str(1 << 30)}, 8, 1024),
        ("0::/a/b\n", {"a/cpu.max": "400000 100000", "a/b/cpu.max": "600000 100000"}, 4, 16000),
        ("0::/\n", {"cpu.max": "50000 100000", "memory.max": str(512 << 20)}, 1, 512),
        (
            "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n",
            {
                "memory/docker/x/memory.limit_in_bytes": str(3 << 30),
                "cpu/docker/x/cpu.cfs_quota_us": "200000",
                "cpu/docker/x/cpu.cfs_period_us": "100000",
            },
            2,
            3072,
        ),
        ("4:memory:/gone\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, 8, 16000),
        (
            "4:memory:/gone\n3:cpu:/gone\n",
            {"memory/memory.limit_in_bytes": str(1 << 30), "cpu/cpu.cfs_quota_us": "-1"},
            8,
            1024,
        ),
        ("0::/x\n", {"x/memory.max": "nonsense", "x/cpu.max": ""}, 8, 16000),
        ("0::/x\n", {"x/cpu.max": "100000 0", "x/memory.max": str(1 << 60)}, 8, 16000),
        ("0::/x\n", {"x/cpu.max": "1600000 100000", "x/memory.max": str(32 << 30)}, 8, 16000),
        ("0::/../x\n", {"x/cpu.max": "250000 100000"}, 2, 16000),
        ("3:cpu:/x\n", {"cpu.max": "100000 100000"}, 8, 16000),
        ("nonsense\n2:freezer:/x\n0::/x\n", {"x/cpu.max": "100000 100000"}, 1, 16000),
    ],
)
def test_cgroup_limits(tmp_path: Path, cgroup: str, files: dict[str, str], cpus: int, memory: int) -> None:
    found = machine(
        tmp_path, **{"proc/self/cgroup": cgroup, **{f"sys/fs/cgroup/{name}": text for name, text in files.items()}}
    )
    assert (found.cpus(), found.memory_mib()) == (cpus, memory)


def test_memory_that_cant_be_found_is_absent(tmp_path: Path) -> None:
    found = machine(tmp_path, **{"proc/meminfo": "nothing\n"})
    assert "memory_mib" not in found.facts({"process": "none"})


def test_a_machine_that_says_nothing_of_its_processors_has_one(tmp_path: Path) -> None:
    assert machine(tmp_path, **{"proc/cpuinfo": "Features: fp asimd\n"}).cpus() == 1


def test_processors_and_memory_are_counted_by_their_own_lines(tmp_path: Path) -> None:
    found = machine(
        tmp_path,
        **{
            "proc/cpuinfo": "processor : 0\nmodel name: a processor : 7\nprocessor\t: 1\n",
            "proc/meminfo": "MemFree: 1 kB\nMemTotal: 2097153 kB\n",
        },
    )
    assert (found.cpus(), found.memory_mib()) == (2, 2048)


def test_the_facts_of_a_machine_in_full(tmp_path: Path) -> None:
    tools = Tools(nvidia_smi=(0, NVIDIA[0][0]), hl_smi=(0, "HL-225, 98304, 1.16, 0000:19:00.0\n"))
    facts = machine(tmp_path, tools).facts({"process": "user", "docker": "container"})
    assert set(facts) == set(
        [
            "cpus",
            "memory_mib",
            "disk_mib",
            "arch",
            "hostname",
            "addresses",
            "networks",
            "gpus",
            "runtimes",
            "isolation",
            "user",
        ]
    )
    assert (facts["cpus"], facts["memory_mib"], facts["runtimes"]) == (8, 16000, ["docker", "process"])
    assert facts["isolation"] == {"process": "user", "docker": "container"}
    assert facts["disk_mib"] == pytest.approx(shutil.disk_usage(tmp_path).free / 2**20, abs=4096)
    assert facts["hostname"] == socket.gethostname()
    assert facts["user"] == pwd.getpwuid(os.getuid()).pw_name
    assert [(gpu["vendor"], gpu["id"]) for gpu in facts["gpus"]] == [("nvidia", "GPU-aa"), ("intel", "0000:19:00.0")]


def test_each_vendors_tool_is_asked_once_and_in_its_own_way(tmp_path: Path) -> None:
    tools = Tools()
    machine(tmp_path, tools).gpus()
    assert [" ".join(argv) for argv in tools.calls] == [
        "nvidia-smi --query-gpu=uuid,name,memory.total,driver_version --format=csv,noheader,nounits",
        "amd-smi static --asic --vram --driver --bus --json",
        "hl-smi -Q name,memory.total,driver_version,bus_id -f csv,noheader,nounits",
        "tt-smi -s",
    ]


def test_use_is_asked_of_nvidia_and_nothing_where_that_fails(tmp_path: Path) -> None:
    tools = Tools(nvidia_smi=(0, "GPU-aa, 1, 2\n"))
    assert machine(tmp_path, tools).gpu_usage({"nvidia"}) == {
        "GPU-aa": {"memory_usage_bytes": 1 << 20, "util_percent": 2}
    }
    assert tools.calls[-1][1] == "--query-gpu=uuid,memory.used,utilization.gpu"
    assert machine(tmp_path, Tools(nvidia_smi=(1, "GPU-aa, 1, 2\n"))).gpu_usage({"nvidia"}) == {}


def test_a_tool_is_run_and_its_output_read(tmp_path: Path) -> None:
    assert run_tool(["sh", "-c", "printf 'a\\377'; echo lost >&2; exit 3"]) == (3, "a\ufffd")
    assert run_tool(["cat"]) == (0, ""), "it gets no input to wait for"
    assert run_tool(["no-such-tool-anywhere"]) == (127, "")
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    assert run_tool([str(broken)]) == (126, "")


def test_told_gpus_get_ids_of_their_own_unless_they_are_told(tmp_path: Path) -> None:
    (tmp_path / "told.json").write_text(json.dumps({"gpus": [{"name": "A100"}, {"name": "T4", "id": "mine"}]}))
    found = Inventory(str(tmp_path), Tools(), facts_file=str(tmp_path / "told.json")).facts({})
    assert found["gpus"] == [{"id": "0", "name": "A100"}, {"id": "mine", "name": "T4"}]


def test_this_machines_addresses_end_with_loopback() -> None:
    found = addresses()
    assert found[-1] == "127.0.0.1" and len(set(found)) == len(found)
    first = default_address()
    assert not first or found[0] == first


def test_an_interface_has_its_address_and_mask() -> None:
    assert ("lo", "127.0.0.1", "255.0.0.0") in interfaces()


def test_told_facts_replace_what_is_found(tmp_path: Path) -> None:
    (tmp_path / "told.json").write_text(json.dumps({"cpus": 96, "hostname": "vm-7", "colour": "red"}))
    found = Inventory(str(tmp_path), Tools(), facts_file=str(tmp_path / "told.json")).facts({"process": "none"})
    assert (found["cpus"], found["hostname"]) == (96, "vm-7")
    assert found["runtimes"] == ["process"] and "colour" not in found


def test_this_very_machine() -> None:
    facts = Inventory("/tmp").facts({"process": "none"})
    assert facts["cpus"] >= 1 and facts["memory_mib"] > 64 and facts["disk_mib"] > 0
    assert facts["arch"] in ("x86", "arm") and facts["hostname"] and facts["user"]
    assert "127.0.0.1" in facts["addresses"]


NVIDIA = [
    ("GPU-aa, NVIDIA H100 80GB HBM3, 81559, 550.54.15\n", [("H100 80GB HBM3", 81559, "550.54.15")]),
    ("GPU-aa, NVIDIA A100-SXM4-80GB, 81920 MiB, 535.1\n", [("A100-SXM4-80GB", 81920, "535.1")]),
    (
        "GPU-aa, Tesla T4, 15360, 470\nGPU-bb, NVIDIA GeForce RTX 5090, 32607, 570\n",
        [("T4", 15360, "470"), ("GeForce RTX 5090", 32607, "570")],
    ),
    ("uuid, name, memory.total [MiB], driver_version\nGPU-aa, NVIDIA H200, 143771, 1\n", [("H200", 143771, "1")]),
    ("GPU-aa, NVIDIA H200, [N/A], 1\nGPU-bb, NVIDIA H200, 143771, [N/A]\n", [("H200", 143771, "")]),
    (
        "GPU-aa, NVIDIA A100, 40960, 1\n  MIG 3g.20gb Device 0: (UUID: MIG-1, x, y)\nMIG-2, A100 MIG 1g, 4864, 1\n",
        [("A100", 40960, "1")],
    ),
    ("No devices were found\n", []),
    ("", []),
]


@pytest.mark.parametrize(("text", "want"), NVIDIA)
def test_nvidia(tmp_path: Path, text: str, want: list[tuple[str, int, str]]) -> None:
    found = machine(tmp_path, Tools(nvidia_smi=(0, text))).gpus()
    assert [(gpu["name"], gpu["memory_mib"], gpu["driver"]) for gpu in found] == want
    assert {gpu["vendor"] for gpu in found} <= {"nvidia"}
    assert len({gpu["id"] for gpu in found}) == len(found)


def test_a_tool_that_fails_finds_nothing(tmp_path: Path) -> None:
    broken = Tools(
        nvidia_smi=(9, "GPU-aa, NVIDIA H100, 81559, 1\n"), amd_smi=(1, "[]"), hl_smi=(255, ""), tt_smi=(126, "{")
    )
    assert machine(tmp_path, broken).gpus() == []
    assert machine(tmp_path).gpus() == []


BUS = "0000:%02x:00.0"


def amd_card(**more: object) -> dict[str, object]:
    return {
        "gpu": 0,
        "asic": {"market_name": "AMD Instinct MI300X OAM", "device_id": "0x74a1"},
        "bus": {"bdf": "0000:05:00.0"},
        "vram": {"type": "HBM", "size": {"value": 196592, "unit": "MB"}},
        "driver": {"name": "amdgpu", "version": "6.8.5"},
        **more,
    }


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (json.dumps([amd_card(), amd_card(gpu=1)]), [("MI300X", 196592), ("MI300X", 196592)]),
        (json.dumps({"gpu_data": [amd_card()]}), [("MI300X", 196592)]),
        (json.dumps([amd_card(vram={"vram_size": "196300 MB"})]), [("MI300X", 196300)]),
        (json.dumps([amd_card(vram={"size": "N/A"})]), []),
        (json.dumps([amd_card(vram="N/A")]), []),
        (json.dumps([amd_card(asic={"market_name": "N/A"})]), []),
        (json.dumps([amd_card(asic="N/A", driver="N/A"), "N/A", None]), []),
        ("WARNING: user is not in the render group\n" + json.dumps([amd_card()]), [("MI300X", 196592)]),
        ("{broken", []),
        ("", []),
    ],
)
def test_amd(text: str, want: list[tuple[str, int]]) -> None:
    assert [(gpu["name"], gpu["memory_mib"]) for gpu in gpu_tools.amd(text)] == want


def test_amd_cards_in_full() -> None:
    other = amd_card(gpu="gpu-7", bus={"bdf": "06:00.0"}, asic={"market_name": "Radeon PRO W7900"}, driver="N/A")
    nameless = {name: value for name, value in amd_card(vram={"size": {"value": "64", "unit": "GB"}}).items()}
    del nameless["gpu"], nameless["driver"], nameless["bus"]
    assert gpu_tools.amd(json.dumps([amd_card(), other, nameless])) == [
        {"name": "MI300X", "memory_mib": 196592, "vendor": "amd", "driver": "6.8.5", "id": "0", "bus": BUS % 5},
        {"name": "PRO W7900", "memory_mib": 196592, "vendor": "amd", "driver": "", "id": "gpu-7", "bus": BUS % 6},
        {"name": "MI300X", "memory_mib": 65536, "vendor": "amd", "driver": "", "id": "2", "bus": ""},
    ]
    assert gpu_tools.amd(json.dumps([amd_card(vram={"size": {"value": 512}})]))[0]["memory_mib"] == 512
    assert gpu_tools.amd("3") == gpu_tools.amd('"text"') == []


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("81559", 81559),
        (" 81559 MiB ", 81559),
        ("2048 KB", 2),
        ("80 GB", 81920),
        ("80gib", 81920),
        ("1.5 GB", 1536),
        ("2 TB", 2 << 20),
        (512, 512),
        ("512 B", 512),
        ("N/A", None),
        ("1 2", None),
        ("", None),
        (None, None),
    ],
)
def test_sizes(text: object, want: int | None) -> None:
    assert gpu_tools.mib(text) == want


@pytest.mark.parametrize("text", ["N/A", "[N/A]", "unknown", "[Not Supported]", "", "  ", None])
def test_what_a_tool_doesnt_know(text: str | None) -> None:
    assert gpu_tools.value_of(text) == ""
    assert gpu_tools.value_of(" 550.1 ") == "550.1"


@pytest.mark.parametrize("board", gpu_tools.TENSTORRENT_MIB)
def test_each_board_of_tenstorrent_has_its_memory(board: str) -> None:
    chip = {"device_info": [{"board_info": {"board_type": f"{board.upper()} R"}}], "host_info": None}
    assert gpu_tools.tenstorrent(json.dumps(chip)) == [
        {"name": board, "memory_mib": MEMORY[board], "vendor": "tenstorrent", "driver": "", "id": "0", "bus": ""}
    ]


MEMORY = {"n150": 12288, "n300": 12288, "p100": 28672, "p150": 32768, "p300": 32768, "e75": 8192, "e150": 8192}


def test_a_board_that_is_new_has_no_known_memory() -> None:
    text = json.dumps({"device_info": [{}, {"board_info": {"board_type": "z900"}}]})
    assert [(gpu["memory_mib"], gpu["id"]) for gpu in gpu_tools.tenstorrent(text)] == [(0, "1")]


def test_each_gaudi_has_its_name() -> None:
    text = "".join(f"{code}, 1, 1, N/A\n" for code in ("HL-205", "hl-225H", "HL-325L", "HL-328", "HL-999"))
    found = gpu_tools.intel(text)
    assert [(gpu["name"], gpu["id"]) for gpu in found] == [
        ("Gaudi", "0"),
        ("Gaudi2", "1"),
        ("Gaudi3", "2"),
        ("Gaudi3", "3"),
        ("HL-999", "4"),
    ]


def test_json_after_a_notice() -> None:
    assert gpu_tools.load("note: [1]") == [1]
    assert gpu_tools.load('x {"a": [1]}') == {"a": [1]}
    assert gpu_tools.load("[1, {}]") == [1, {}]
    assert gpu_tools.load("none") is None


def test_intel() -> None:
    text = "HL-225, 98304, 1.16.2-abc, 0000:19:00.0\nHL-325L, 131072, 1.20, 0000:1a:00.0\n"
    text += "HL-225, N/A, 1, 0000:1b:00.0\nname, memory.total [MiB], driver_version, bus_id\n"
    assert gpu_tools.intel(text) == [
        {
            "name": "Gaudi2",
            "memory_mib": 98304,
            "vendor": "intel",
            "driver": "1.16.2-abc",
            "id": "0000:19:00.0",
            "bus": BUS % 0x19,
        },
        {
            "name": "Gaudi3",
            "memory_mib": 131072,
            "vendor": "intel",
            "driver": "1.20",
            "id": "0000:1a:00.0",
            "bus": BUS % 0x1A,
        },
    ]


def chip(kind: str, bus: str, board: str) -> dict[str, Any]:
    return {"board_info": {"board_type": kind, "bus_id": bus, "board_id": board}}


def test_a_board_of_tenstorrent_is_one_card_however_many_chips_it_has() -> None:
    chips = [
        chip("n300 L", BUS % 1, "a"),
        chip("n150 L", BUS % 2, "b"),
        chip("n300 R", "N/A", "a"),
        chip("N/A", "", "c"),
    ]
    chips += [chip("p300c", BUS % 3, "d"), chip("p300c", BUS % 4, "d")]  # each chip has its own node
    text = json.dumps({"host_info": {"Driver": "TT-KMD 1.33"}, "device_info": [*chips, {"board_info": {}}, {}, None]})
    found = gpu_tools.tenstorrent("Gathering information…\n" + text)
    assert [(gpu["name"], gpu["memory_mib"], gpu["driver"], gpu["bus"], gpu["id"]) for gpu in found] == [
        ("n300", 24576, "1.33", "0000:01:00.0", "0"),
        ("n150", 12288, "1.33", "0000:02:00.0", "1"),
        ("p300c", 32768, "1.33", "0000:03:00.0", "4"),
        ("p300c", 32768, "1.33", "0000:04:00.0", "5"),
    ]
    assert gpu_tools.tenstorrent("[]") == gpu_tools.tenstorrent("") == []


def test_use_of_nvidia_cards() -> None:
    text = "GPU-aa, 1024, 37\nGPU-bb, [N/A], [N/A]\nGPU-cc, 5 MiB, 99 %\nnonsense\n"
    assert gpu_tools.nvidia_usage(text) == {
        "GPU-aa": {"memory_usage_bytes": 1 << 30, "util_percent": 37},
        "GPU-bb": {},
        "GPU-cc": {"memory_usage_bytes": 5 << 20, "util_percent": 99},
    }


def test_use_of_gaudi_cards() -> None:
    assert gpu_tools.intel_usage("0000:19:00.0, 672 MiB, 3 %\n0000:1a:00.0, N/A, N/A\n") == {
        "0000:19:00.0": {"memory_usage_bytes": 672 << 20, "util_percent": 3},
        "0000:1a:00.0": {},
    }


@pytest.mark.parametrize("wrapped", [False, True])
def test_use_of_amd_cards(wrapped: bool) -> None:
    cards = [
        {"gpu": 0, "usage": {"gfx_activity": {"value": 40, "unit": "%"}},
         "mem_usage": {"used_vram": {"value": 283, "unit": "MB"}}},
        {"gpu": 1, "usage": {"gfx_activity": 7}, "mem_usage": {"used_vram": 5}},
        {"gpu": 2, "usage": "N/A", "mem_usage": {"used_vram": "N/A"}},
        {"gpu": 3, "usage": {"gfx_activity": {"value": "N/A", "unit": "%"}}},
    ]  # fmt: skip
    assert gpu_tools.amd_usage(json.dumps({"gpu_data": cards} if wrapped else cards)) == {
        "0": {"memory_usage_bytes": 283 << 20, "util_percent": 40},
        "1": {"memory_usage_bytes": 5 << 20, "util_percent": 7},
        "2": {},
        "3": {},
    }
    assert gpu_tools.amd_usage("no JSON") == {}


def test_use_is_asked_of_the_tools_of_the_vendors(tmp_path: Path) -> None:
    tools = Tools(nvidia_smi=(0, "GPU-aa, 1, 2\n"), hl_smi=(0, "0000:19:00.0, 3, 4\n"))
    assert set(machine(tmp_path, tools).gpu_usage(["intel", "tenstorrent"])) == {"0000:19:00.0"}
    assert [argv[0] for argv in tools.calls] == ["hl-smi"]
