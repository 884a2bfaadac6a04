"""What is recognised on a disk, and what is chosen; the disks are bytes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from chalicelib.agent.volumes import signatures
from chalicelib.agent.volumes.signatures import (
    CONTAINERS,
    EXT_COPIES,
    FILESYSTEMS,
    MIB,
    PAGES,
    SWAP,
    UNSUPPORTED,
    ZFS,
    Contents,
    Magic,
    MountChoice,
    UnusableDisk,
    choose,
    formattable,
    inspect,
)
from tests.harness.rows import each

SIZE = 200 * MIB
KNOWN = [*FILESYSTEMS, *CONTAINERS, *UNSUPPORTED]


def disk(*written: tuple[int, bytes], size: int = SIZE) -> Contents:
    """A disk of zeroes, but for what was written at these places (from the end, if negative)."""

    def read(at: int, length: int) -> bytes:
        found = bytearray(max(0, min(length, size - at)))
        for place, data in written:
            start = (place if place >= 0 else size + place) - at
            for offset in range(max(0, -start), len(data)):
                if start + offset >= len(found):
                    break
                found[start + offset] = data[offset]
        return bytes(found)

    return inspect(read, size)


def test_zeroes_are_blank() -> None:
    assert disk() == Contents(blank=True)
    assert disk().description() == "nothing"
    assert formattable(disk(), {}, False)


@pytest.mark.parametrize(
    ("at", "data", "reason"),
    [
        (0, "4c554b53babe", "an encrypted disk (LUKS)"),
        (3, "2d4656452d46532d", "an encrypted disk (BitLocker)"),
        (0, "fc4e2ba9", "a RAID member (md)"),
        (4096, "fc4e2ba9", "a RAID member (md)"),
        (4120, "c68573f64e1a45ca8265f57f48ba6d81", "a bcache disk"),
        (3, "4e54465320202020", "an NTFS filesystem"),
        (3, "4558464154202020", "an exFAT filesystem"),
        (54, "464154", "a FAT filesystem"),
        (82, "4641543332", "a FAT filesystem"),
        (32769, "4344303031", "an ISO 9660 image"),
        (32769, "4245413031", "a UDF filesystem"),
        (34817, "4e535230", "a UDF filesystem"),
        (1024, "1020f5f2", "an F2FS filesystem"),
        (1024, "e2e1f5e0", "an EROFS image"),
        (0, "68737173", "a squashfs image"),
        (32768, "4a465331", "a JFS filesystem"),
        (65588, "52654973457232467300", "a ReiserFS filesystem"),
        (65536, "01161970", "a GFS2 filesystem"),
        (1024, "482b0004", "an HFS+ filesystem"),
        (1024, "48580005", "an HFS+ filesystem"),
        (32, "4e585342", "an APFS container"),
    ],
)
def test_what_formats_begin_with(at: int, data: str, reason: str) -> None:
    """As their documentation has it, in numbers of its own: the table's are what is tested."""
    assert disk((at, bytes.fromhex(data))).description() == reason
    assert disk((at + 1, bytes.fromhex(data))).description() != reason


@pytest.mark.parametrize(("size", "blank"), [(0, False), (1, True), (MIB + 1, True)])
def test_a_disk_of_any_size_is_blank_but_of_none_nothing_is_known(size: int, blank: bool) -> None:
    assert disk(size=size).blank is blank


@each("magic", KNOWN, ids=lambda magic: f"{magic.name}@{magic.at}")
def test_every_signature_is_named_and_nothing_with_one_is_formatted(magic: Magic) -> None:
    found = disk((magic.at, magic.text))
    assert magic.name in found.description()
    assert not found.blank and not formattable(found, {}, False)


@each("magic", KNOWN, ids=lambda magic: f"{magic.name}@{magic.at}")
def test_not_even_on_a_disk_that_we_began_to_format(magic: Magic) -> None:
    assert not formattable(disk((magic.at, magic.text)), {}, True)


@each("page", PAGES)
@each("text", SWAP)
def test_swap_of_every_page_size(page: int, text: bytes) -> None:
    assert disk((page - 10, text)).unsupported == ("swap space",)


@pytest.mark.parametrize("sector", range(4))
def test_lvm_in_each_of_its_sectors(sector: int) -> None:
    assert disk((sector * 512, b"LABELONE")).unsupported == ("an LVM physical volume",)


@pytest.mark.parametrize("at", [-65536, -8192])
def test_arrays_whose_mark_is_at_the_end(at: int) -> None:
    for text in signatures.MD:
        assert disk((at, text)).unsupported == ("a RAID member (md)",)


@pytest.mark.parametrize("label", [0, 256 << 10, -(512 << 10), -(256 << 10)])
def test_zfs_by_each_of_its_labels(label: int) -> None:
    for text in ZFS:
        assert disk((label + (128 << 10) + 3 * 1024, text)).unsupported == ("a ZFS disk",)


@pytest.mark.parametrize("copy", EXT_COPIES, ids=lambda copy: str(copy.at))
def test_an_ext4_filesystem_whose_beginning_is_lost(copy: Magic) -> None:
    block = bytearray(128)
    block[56:58], block[24] = copy.text, 2
    found = disk((copy.at, bytes(block)))
    assert found.unsupported == ("remains of an ext4 filesystem",)
    assert (formattable(found, {}, False), formattable(found, {}, True)) == (False, True), "mkfs of ours was cut off"


@pytest.mark.parametrize("at", [0, 5000, MIB - 1, -MIB, -1])
def test_unknown_data_at_either_end_isnt_blank(at: int) -> None:
    found = disk((at, b"x"))
    assert not found.blank and found.description() == "unknown data"
    assert not formattable(found, {}, False)


def mbr(kind: int = 0x83, flag: int = 0, entry: int = 0) -> bytes:
    return bytes(446 + 16 * entry) + bytes([flag, 0, 0, 0, kind]) + bytes(59 - 16 * entry) + b"\x55\xaa"


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ((0, mbr()), "an MBR partition table"),
        ((0, mbr(flag=0x80)), "an MBR partition table"),
        *(((0, mbr(entry=entry)), "an MBR partition table") for entry in (1, 2, 3)),
        ((0, mbr(kind=0)), "a boot sector"),
        *(((0, mbr(flag=0x33, entry=entry)), "a boot sector") for entry in (0, 1, 2, 3)),
        ((512, b"EFI PART"), "a GPT partition table"),
        ((4096, b"EFI PART"), "a GPT partition table"),
    ],
)
def test_partition_tables(start: tuple[int, bytes], reason: str) -> None:
    found = disk(start)
    assert (found.table, found.description()) == (reason, reason)
    assert not formattable(found, {}, True)


def test_a_table_with_its_copy_is_one_table() -> None:
    assert disk((512, b"EFI PART"), (-512, b"EFI PART")).description() == "a GPT partition table"


def test_a_filesystem_may_begin_with_a_boot_sector_and_end_with_an_old_table() -> None:
    found = disk((0, mbr(kind=0)), (1080, b"\x53\xef"), (-512, b"EFI PART"))
    assert choose("/dev/a", found, {}) == MountChoice("/dev/a", "ext4")


@pytest.mark.parametrize(
    "written",
    [
        ((1080, b"\x53\xef"), (0, mbr())),
        ((1080, b"\x53\xef"), (0, b"XFSB")),
        ((1080, b"\x53\xef"), (-65536, signatures.MD[0])),
        ((1080, b"\x53\xef"), (512, b"LABELONE")),
    ],
)
def test_a_filesystem_with_anything_else_is_left_alone(written: tuple[tuple[int, bytes], ...]) -> None:
    with pytest.raises(UnusableDisk, match=r"/dev/a has .*ext4.* and "):
        choose("/dev/a", disk(*written), {})


EXT, SWAPPED, EMPTY = Contents(("ext4",)), Contents(unsupported=("swap space",)), Contents(blank=True)
TABLE = Contents(table="a GPT partition table")


def test_the_only_partition_with_a_filesystem() -> None:
    parts = {"/dev/a1": EMPTY, "/dev/a2": EXT, "/dev/a3": SWAPPED}
    assert choose("/dev/a", TABLE, parts) == MountChoice("/dev/a2", "ext4")
    assert not formattable(EMPTY, parts, True), "a disk with partitions isn't blank"


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"/dev/a1": EXT, "/dev/a2": EXT}, "several filesystems"),
        ({"/dev/a1": SWAPPED}, "/dev/a1: swap space"),
        ({}, "no partitions"),
    ],
)
def test_any_other_number_of_filesystems_is_refused(parts: dict[str, Contents], reason: str) -> None:
    with pytest.raises(UnusableDisk, match=reason):
        choose("/dev/a", TABLE, parts)


def test_a_disk_without_anything_is_refused_unless_it_is_formatted() -> None:
    with pytest.raises(UnusableDisk, match=r"no filesystem \(found: nothing\); make one"):
        choose("/dev/a", EMPTY, {})


MAKERS = {
    "mkfs.ext4": "ext4 filesystem", "mkfs.ext2": "ext4 filesystem", "mkfs.xfs": "xfs filesystem",
    "mkfs.btrfs": "btrfs filesystem", "mkswap": "swap space",
}  # fmt: skip


@pytest.mark.parametrize("program", [name for name in MAKERS if shutil.which(name, path="/usr/sbin:/sbin")])
def test_what_real_programs_make(tmp_path: Path, program: str) -> None:
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(400 * MIB)
    subprocess.run([program, "-q" if program.startswith("mkfs.") else "-f", image], check=True, capture_output=True)
    with image.open("rb") as file:

        def read(at: int, length: int) -> bytes:
            file.seek(at)
            return file.read(length)

        assert inspect(read, 400 * MIB).description() == MAKERS[program]
