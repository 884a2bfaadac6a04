"""The script for data disks, run by a shell with commands that only say what they do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from chalicelib.backends.kit.data_disk import prepare

STUBS = ("blkid", "mdadm", "mkfs.ext4", "mount", "systemctl")


class Machine:
    """A folder in place of `/`, with commands that write down how they are called."""

    def __init__(self, root: Path, *disks: str, label: str = "", failing: str = "") -> None:
        self.root = root
        (root / "bin").mkdir()
        for name in STUBS:
            does = f"echo {label}" if name == "blkid" else "exit 1" if name == failing else ":"
            made = '; [ "$1" != --create ] || : > "$2"' if name == "mdadm" else ""
            stub = root / "bin" / name
            stub.write_text(f'#!/bin/sh\necho "{name} $*" >> {root}/calls\n{does}{made}\n')
            stub.chmod(0o755)
        for each in ("dev/md", "dev/disk/by-id"):
            (root / each).mkdir(parents=True)
        for disk in disks:
            (root / "dev" / disk).touch()

    def boots(self, disk: str = "") -> tuple[list[str], str]:
        """The calls, and what was said."""
        script = prepare(disk).replace("! -b", "! -e").replace("sleep 1", ":")
        for each in ("/dev/", "/mnt/", "/var/"):
            script = script.replace(each, f"{self.root}{each}")
        script = script.replace(f"2>{self.root}/dev/null", "2>/dev/null")
        env = {"PATH": f"{self.root}/bin:/usr/bin:/bin"}
        done = subprocess.run(
            ["sh", "-c", f"{script}echo goes on"], env=env, capture_output=True, text=True, check=True, timeout=120
        )
        calls = (self.root / "calls").read_text().replace(str(self.root), "").splitlines()
        return [call for call in calls if not call.startswith("blkid")], done.stdout + done.stderr


BOUND = [
    "systemctl stop docker.socket docker containerd",
    *(f"mount --bind /mnt/dstack/{each} /var/lib/{each}" for each in ("docker", "containerd", "dstack")),
    "systemctl start containerd docker",
]


def test_a_new_data_disk_is_formatted_once(tmp_path: Path) -> None:
    data = "/dev/disk/by-id/virtio-S1"
    calls, said = Machine(tmp_path, "disk/by-id/virtio-S1").boots(data)
    assert calls == [f"mkfs.ext4 -q -L dstack {data}", f"mount {data} /mnt/dstack", *BOUND]
    assert said == "goes on\n"


def test_what_is_on_a_disk_survives_a_reboot(tmp_path: Path) -> None:
    data = "/dev/disk/by-id/virtio-S1"
    calls, _ = Machine(tmp_path, "disk/by-id/virtio-S1", label="dstack").boots(data)
    assert calls == [f"mount {data} /mnt/dstack", *BOUND]


def test_one_disk_of_its_own_is_used_as_it_is(tmp_path: Path) -> None:
    calls, _ = Machine(tmp_path, "nvme0n1").boots()
    assert calls[:2] == ["mkfs.ext4 -q -L dstack /dev/nvme0n1", "mount /dev/nvme0n1 /mnt/dstack"]


def test_several_are_one(tmp_path: Path) -> None:
    calls, _ = Machine(tmp_path, "nvme0n1", "nvme1n1").boots()
    assert calls[0].startswith("mdadm --create /dev/md/dstack --run --level=0 --raid-devices=2 /dev/nvme0n1 /dev/nvme1")
    assert calls[1:3] == ["mkfs.ext4 -q -L dstack /dev/md/dstack", "mount /dev/md/dstack /mnt/dstack"]


def test_several_that_are_one_already_stay_one(tmp_path: Path) -> None:
    calls, _ = Machine(tmp_path, "nvme0n1", "nvme1n1", "md/host:dstack", label="dstack").boots()
    assert calls[0] == "mount /dev/md/host:dstack /mnt/dstack"


@pytest.mark.parametrize("failing", ["mkfs.ext4", "mount"])
def test_a_machine_whose_disk_cant_be_used_goes_on_with_the_systems(tmp_path: Path, failing: str) -> None:
    _, said = Machine(tmp_path, "nvme0n1", failing=failing).boots()
    assert "goes on" in said and "the data disk can't be used" in said


def test_a_device_is_a_word_whatever_it_is_called() -> None:
    assert "disk='/dev/a b; reboot'\n" in prepare("/dev/a b; reboot") and "disk=''\n" in prepare()
