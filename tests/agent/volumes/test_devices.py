"""Disks found by identity in a tree of the kernel's files, and what the kernel says is mounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.agent.kernel.mountinfo import MountEntry, parse
from chalicelib.agent.volumes.devices import BlockDevice, find
from chalicelib.agent.volumes.signatures import UnusableDisk


class Machine:
    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "sys/block").mkdir(parents=True)
        (root / "dev/disk/by-id").mkdir(parents=True)

    def disk(self, name: str, number: str, size: int = 2048, **files: bytes) -> None:
        place = self.root / "sys/block" / name
        place.mkdir()
        found = {"dev": number.encode() + b"\n", "size": b"%d\n" % size, "ro": b"0\n", **files}
        for path, data in found.items():
            file = place / path.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)

    def partition(self, disk: str, name: str, number: str) -> None:
        place = self.root / "sys/block" / disk / name
        place.mkdir()
        for file, text in {"dev": number, "size": "8", "ro": "0", "partition": "1"}.items():
            (place / file).write_text(text + "\n")

    def link(self, name: str, device: str) -> None:
        (self.root / "dev" / device).touch()
        (self.root / "dev/disk/by-id" / name).symlink_to(f"../../{device}")

    def find(self, **identity: str) -> BlockDevice | None:
        return find(identity, str(self.root))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("nvme1n1", {"device__serial": b"vol0a1  \n"}),
        ("vdb", {"serial": b"vol0a1"}),
        ("sdb", {"device__vpd_pg80": b"\0\x80\0\x06vol0a1"}),
    ],
)
def test_by_serial_as_each_kind_of_disk_tells_it(machine: Machine, name: str, files: dict[str, bytes]) -> None:
    machine.disk("vda", "254:0", serial=b"vol0a")
    machine.disk(name, "259:1", **files)
    assert machine.find(serial="vol0a1") == BlockDevice(f"/dev/{name}", "259:1", 2048 * 512, False)
    assert machine.find(serial="vol0") is None


def test_by_link_and_by_file(machine: Machine) -> None:
    machine.disk("sdb", "8:16")
    machine.link("google-data", "sdb")
    machine.disk("loop3", "7:3", loop__backing_file=b"/disks/a b.img\n")
    assert getattr(machine.find(by_id="google-data"), "path", "") == "/dev/sdb"
    assert getattr(machine.find(backing_file="/disks/a b.img"), "path", "") == "/dev/loop3"
    assert machine.find(by_id="google-other") is None
    assert machine.find(by_id="google-data", serial="x") is None, "all that is known of it must agree"


def test_by_a_link_that_tells_its_place(machine: Machine) -> None:
    machine.disk("sdc", "8:32")
    place = machine.root / "dev" / "disk" / "azure" / "scsi1"
    place.mkdir(parents=True)
    (place / "lun0").symlink_to("../../../sdc")
    assert getattr(machine.find(link="azure/scsi1/lun0"), "path", "") == "/dev/sdc"
    assert machine.find(link="azure/scsi1/lun1") is None
    for wrong in ("../sdc", "azure/../by-id/x", "/sdc", "a//b"):
        with pytest.raises(UnusableDisk, match="isn't the name of a disk"):
            machine.find(link=wrong)


@pytest.mark.parametrize("name", ["../sda", "..", "a/b"])
def test_a_link_is_a_plain_name(machine: Machine, name: str) -> None:
    machine.disk("sda", "8:0")
    with pytest.raises(UnusableDisk, match="isn't the name of a disk"):
        machine.find(by_id=name)


def test_two_disks_with_one_identity_are_refused(machine: Machine) -> None:
    machine.disk("nvme0n1", "259:0", device__serial=b"same")
    machine.disk("nvme0n2", "259:1", device__serial=b"same")
    with pytest.raises(UnusableDisk, match="nvme0n1, nvme0n2"):
        machine.find(serial="same")


def test_one_path_of_several_to_a_disk_isnt_another_disk(machine: Machine) -> None:
    machine.disk("nvme0c0n1", "0:0", device__serial=b"same", hidden=b"1\n")
    machine.disk("nvme0n1", "259:1", device__serial=b"same", hidden=b"0\n")
    assert getattr(machine.find(serial="same"), "path", "") == "/dev/nvme0n1"


def test_a_disk_without_size_isnt_there_yet(machine: Machine) -> None:
    machine.disk("nvme0n1", "259:1", size=0, device__serial=b"new")
    assert machine.find(serial="new") is None


def test_without_identity_nothing_is_guessed(machine: Machine) -> None:
    machine.disk("sdb", "8:16", serial=b"")
    with pytest.raises(UnusableDisk, match="didn't say how to recognise"):
        machine.find(serial="")


def test_partitions_and_write_protection(machine: Machine) -> None:
    machine.disk("sdb", "8:16", serial=b"s", ro=b"1\n")
    machine.partition("sdb", "sdb1", "8:17")
    machine.partition("sdb", "sdb2", "8:18")
    found = machine.find(serial="s")
    assert found is not None and found.read_only
    assert [(part.path, part.number, part.size) for part in found.partitions] == [
        ("/dev/sdb1", "8:17", 4096),
        ("/dev/sdb2", "8:18", 4096),
    ]
    assert found.part("/dev/sdb2").number == "8:18" and found.part("/dev/sdb") == found


def test_mounts_as_the_kernel_writes_them() -> None:
    text = (
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
        "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:7 - ext3 /dev/root rw,errors=continue\n"
        "40 35 7:0 / /a\\134b ro,relatime - ext4 /dev/loop0 rw\n"
        "41 35 7:1 / /c rw,relatime - ext4 /dev/loop1 ro\n"
    )
    assert parse(text) == [
        MountEntry("0:21", "/", "/proc", False, "proc", "proc"),
        MountEntry("98:0", "/mnt1", "/mnt 2", False, "ext3", "/dev/root"),
        MountEntry("7:0", "/", "/a\\b", True, "ext4", "/dev/loop0"),
        MountEntry("7:1", "/", "/c", True, "ext4", "/dev/loop1"),
    ]
