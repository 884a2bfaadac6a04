"""TPU chips: found by their PCI devices, and given to tasks as nodes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel.task_runtime import TaskError
from chalicelib.agent.program.inventory import Inventory
from chalicelib.agent.runtimes.docker import container_body
from chalicelib.agent.runtimes.visibility import TaskCards, buses_of, cards_of, container_settings, process_variables

ABSENT = 127, ""


def machine(root: Path, chips: int, device: str, subsystem: str = "0x0000", vendor: str = "0x1ae0") -> Inventory:
    for number in range(chips):
        folder = root / "sys/bus/pci/devices" / f"0000:{number + 5:02x}:00.0"
        folder.mkdir(parents=True)
        for name, text in {"vendor": vendor, "device": device, "subsystem_device": subsystem}.items():
            (folder / name).write_text(f"{text}\n")
    return Inventory(str(root), lambda argv: ABSENT, str(root))


@pytest.mark.parametrize(
    ("chips", "device", "subsystem", "name", "gib"),
    [
        (4, "0x0027", "0x004e", "v2-8", 16),
        (4, "0x0027", "0x004f", "v3-8", 32),
        (4, "0x005e", "0x0000", "v4-8", 32),
        (1, "0x0063", "0x0000", "v5litepod-1", 16),
        (8, "0x0063", "0x0000", "v5litepod-8", 16),
        (4, "0x0062", "0x0000", "v5p-8", 95),
        (4, "0x006F", "0x0000", "v6e-4", 32),
    ],
)
def test_a_host_has_the_chips_of_the_slice_that_is_sold(
    tmp_path: Path, chips: int, device: str, subsystem: str, name: str, gib: int
) -> None:
    found = machine(tmp_path, chips, device, subsystem).gpus()
    assert [(gpu["name"], gpu["memory_mib"], gpu["vendor"]) for gpu in found] == [(name, gib * 1024, "google")] * chips
    assert [gpu["id"] for gpu in found] == [str(number) for number in range(chips)]
    assert found[0]["bus"] == "0000:05:00.0"


@pytest.mark.parametrize(("device", "vendor"), [("0x0042", "0x1ae0"), ("0x0027", "0x1ae0"), ("0x0063", "0x10de")])
def test_googles_network_card_and_others_are_no_chips(tmp_path: Path, device: str, vendor: str) -> None:
    assert machine(tmp_path, 1, device, vendor=vendor).gpus() == []


def given(root: Path, found: list[dict[str, Any]]) -> TaskCards:
    ids = [gpu["id"] for gpu in found]
    cards = cards_of({"gpu_vendor": "google", "gpu_buses": buses_of(ids, found)}, ids)
    return TaskCards(cards.vendor, cards.ids, cards.buses, str(root))


def nodes(host: dict[str, Any]) -> list[str]:
    return [device["PathOnHost"] for device in host["Devices"]]


def test_a_container_is_given_older_chips_by_their_own_nodes(tmp_path: Path) -> None:
    found = machine(tmp_path, 2, "0x005e").gpus()
    for number, gpu in enumerate(found):
        (tmp_path / "sys/bus/pci/devices" / gpu["bus"] / f"accel/accel{number}").mkdir(parents=True)
    host, env = container_settings(given(tmp_path, found), privileged=False)
    assert (nodes(host), env) == (["/dev/accel0", "/dev/accel1"], {})
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/accel1").touch()
    if os.getuid() == 0:
        os.chown(tmp_path / "dev/accel1", 0, 44)
        assert container_settings(given(tmp_path, found), privileged=False)[0]["GroupAdd"] == ["44"]
    assert host["CapAdd"] == ["IPC_LOCK", "SYS_RESOURCE"], "what chips write to is locked"


def test_a_container_is_given_newer_chips_by_their_iommu_groups(tmp_path: Path) -> None:
    found = machine(tmp_path, 2, "0x0063").gpus()
    for number, gpu in enumerate(found):
        (tmp_path / "sys/bus/pci/devices" / gpu["bus"] / "iommu_group").symlink_to(f"../../iommu_groups/{number + 7}")
    cards = given(tmp_path, found)
    host, _ = container_settings(cards, privileged=False)
    assert nodes(host) == ["/dev/vfio/7", "/dev/vfio/8", "/dev/vfio/vfio"]
    body = container_body({"image": "i", "env": {}}, "/w", cards, {})
    assert "PJRT_DEVICE=TPU" in body["Env"] and body["HostConfig"]["Privileged"] is False
    assert "PJRT_DEVICE=CPU" in container_body({"image": "i", "env": {"PJRT_DEVICE": "CPU"}}, "/w", cards, {})["Env"]


def test_a_chip_whose_node_isnt_known_is_never_guessed(tmp_path: Path) -> None:
    cards = given(tmp_path, machine(tmp_path, 1, "0x0063").gpus())
    with pytest.raises(TaskError, match=r"0000:05:00\.0 has neither an accel device nor an IOMMU group"):
        container_settings(cards, privileged=False)


def test_a_process_without_chips_uses_the_cpu() -> None:
    assert process_variables(TaskCards("google", [])) == {"PJRT_DEVICE": "CPU"}
    assert process_variables(TaskCards("google", ["0"], ["b"])) == {"PJRT_DEVICE": "TPU"}
