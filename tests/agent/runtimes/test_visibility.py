"""Each task sees its own GPUs and no other: nodes, groups and variables, on machines of every vendor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel.task_runtime import TaskError
from chalicelib.agent.program import gpu_tools
from chalicelib.agent.runtimes.visibility import TaskCards, buses_of, cards_of, container_settings, process_variables

BUSES = [f"0000:{number:02x}:00.0" for number in range(5, 13)]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Eight cards of each vendor as the kernel lists them, behind a display card that has the first numbers."""
    for number, bus in enumerate(BUSES):
        device = tmp_path / "sys/bus/pci/devices" / bus
        names = (
            f"drm/card{number + 1}",
            f"drm/renderD{number + 129}",
            f"accel/accel{number}",
            f"tenstorrent/tenstorrent!{number}",
        )
        for name in names:
            (device / name).mkdir(parents=True)
        module = tmp_path / f"sys/class/accel/accel{number}/device"
        module.mkdir(parents=True)
        (module / "module_id").write_text(f"{7 - number}\n")
    for node, gid in {
        "dev/kfd": 0,
        "dev/dri/renderD131": 44,
        "dev/dri/renderD132": 105,
        "dev/tenstorrent/2": 7,
    }.items():
        (tmp_path / node).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / node).touch()
        if os.getuid() == 0:
            os.chown(tmp_path / node, 0, gid)
    return tmp_path


def block(machine: Path, vendor: str, ids: list[str] | None = None) -> TaskCards:
    """The second of four blocks: the third and fourth card."""
    return TaskCards(vendor, ["2", "3"] if ids is None else ids, BUSES[2:4] if ids is None else [], str(machine))


def nodes(host: dict[str, Any]) -> list[str]:
    return [device["PathOnHost"] for device in host["Devices"]]


def test_a_container_is_given_amd_cards_as_nodes_with_their_groups(machine: Path) -> None:
    host, env = container_settings(block(machine, "amd"), privileged=False)
    assert nodes(host) == ["/dev/kfd", "/dev/dri/renderD131", "/dev/dri/renderD132"]
    assert all(device["PathInContainer"] == device["PathOnHost"] for device in host["Devices"])
    assert host["GroupAdd"] == (["44", "105"] if os.getuid() == 0 else [str(os.getgid())])
    assert (host["CapAdd"], host["SecurityOpt"], env) == (["SYS_PTRACE"], ["seccomp=unconfined"], {})


def test_a_container_is_given_gaudis_by_habanas_runtime(machine: Path) -> None:
    host, env = container_settings(block(machine, "intel"), privileged=False)
    assert (host["Runtime"], host["CapAdd"], env) == ("habana", ["SYS_NICE"], {"HABANA_VISIBLE_DEVICES": "2,3"})


def test_a_container_is_given_tenstorrents_boards_with_huge_pages(machine: Path) -> None:
    host, env = container_settings(block(machine, "tenstorrent"), privileged=False)
    assert (nodes(host), env) == (["/dev/tenstorrent/2", "/dev/tenstorrent/3"], {})
    assert "Binds" not in host, "this machine has none"
    (machine / "dev/hugepages-1G").mkdir()
    host, _ = container_settings(block(machine, "tenstorrent"), privileged=False)
    assert host["Binds"] == ["/dev/hugepages-1G:/dev/hugepages-1G"]


def test_a_container_is_given_nvidias_by_id(machine: Path) -> None:
    host, env = container_settings(block(machine, "nvidia", ["GPU-c", "GPU-d"]), privileged=False)
    (request,) = host["DeviceRequests"]
    assert (request["DeviceIDs"], request["Capabilities"][0][:3]) == (["GPU-c", "GPU-d"], ["gpu", "utility", "compute"])
    assert env == {"NVIDIA_VISIBLE_DEVICES": "GPU-c,GPU-d"}


@pytest.mark.parametrize(
    ("vendor", "want"),
    [
        ("nvidia", {"NVIDIA_VISIBLE_DEVICES": "void"}),
        ("intel", {"HABANA_VISIBLE_DEVICES": "void"}),
        ("amd", {}),
        ("", {}),
    ],
)
def test_a_container_without_cards_sees_none_whatever_its_image_says(
    machine: Path, vendor: str, want: dict[str, str]
) -> None:
    assert container_settings(block(machine, vendor, []), privileged=False) == ({}, want)


@pytest.mark.parametrize("vendor", ["amd", "intel", "tenstorrent"])
def test_only_a_privileged_container_shares_the_hosts_memory_segments(machine: Path, vendor: str) -> None:
    own, shared = (container_settings(block(machine, vendor), privileged)[0] for privileged in (False, True))
    assert ("IpcMode" in own, own["ShmSize"]) == (False, 16 << 30)
    assert (shared["IpcMode"], "ShmSize" in shared) == ("host", False)


@pytest.mark.parametrize(
    ("vendor", "want"),
    [
        ("nvidia", {"CUDA_VISIBLE_DEVICES": "2,3"}),
        ("amd", {"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "0,1"}),
        ("intel", {"HABANA_VISIBLE_DEVICES": "2,3", "HABANA_VISIBLE_MODULES": "5,4"}),
        ("tenstorrent", {"TT_VISIBLE_DEVICES": "2,3"}),
        ("", {}),
    ],
)
def test_a_plain_process_is_told_its_cards(machine: Path, vendor: str, want: dict[str, str]) -> None:
    assert process_variables(block(machine, vendor)) == want
    none = process_variables(block(machine, vendor, []))
    assert none == {name: "-1" for name in want if name != "HABANA_VISIBLE_MODULES"}


def test_an_older_gaudi_driver_has_no_modules(machine: Path) -> None:
    for number in range(8):
        (machine / f"sys/class/accel/accel{number}/device/module_id").unlink()
    assert process_variables(block(machine, "intel")) == {"HABANA_VISIBLE_DEVICES": "2,3"}


@pytest.mark.parametrize("vendor", ["amd", "intel", "tenstorrent"])
def test_a_card_that_cant_be_found_is_never_guessed(tmp_path: Path, vendor: str) -> None:
    with pytest.raises(TaskError, match=r"0000:05:00\.0 has no .*is the driver loaded"):
        container_settings(TaskCards(vendor, ["0"], ["0000:05:00.0"], str(tmp_path)), privileged=False)
    for buses in ([], [""]):
        with pytest.raises(TaskError, match="PCI address of each card isn't known"):
            container_settings(TaskCards(vendor, ["0"], buses, str(tmp_path)), privileged=False)
    with pytest.raises(TaskError, match="can't be given cards of acme"):
        container_settings(TaskCards("acme", ["0"], [""], str(tmp_path)), privileged=False)


def test_cards_are_read_as_the_agent_wrote_them_down() -> None:
    listed = [{"id": "0", "bus": "0000:05:00.0"}, {"id": "1", "bus": "0000:06:00.0"}, {"id": "2"}]
    assert buses_of(["1", "2", "x"], listed) == ["0000:06:00.0", "", ""]
    assert cards_of({"gpu_vendor": "amd", "gpu_buses": ["b"]}, ["1"]) == TaskCards("amd", ["1"], ["b"])
    assert cards_of({}, ["GPU-1"]) == TaskCards("nvidia", ["GPU-1"], []), (
        "named by the server on a machine without a tool"
    )
    assert cards_of({}, []) == TaskCards("", [], [])


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0000:05:00.0", "0000:05:00.0"),
        ("00000000:9B:00.0", "0000:9b:00.0"),
        ("05:00.0", "0000:05:00.0"),
        ("N/A", ""),
        (None, ""),
        ("x", ""),
    ],
)
def test_addresses_as_tools_write_them(text: str | None, want: str) -> None:
    assert gpu_tools.bus_of(text) == want
