"""The contents of a disk, recognised by their signatures: a disk is formatted only if nothing at all is on it.

Filesystems, partition tables, parts of volume groups and arrays, encrypted disks and swap are recognised by their magic
numbers. There are unknown formats and damaged ones, too; so a disk counts as blank only if its first and last MiB are
zero as well, where almost every format has something.

Pure: the caller passes a function that reads the disk.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterator, List, NamedTuple, Tuple

from ..kernel.records import record

MIB = 1 << 20
Read = Callable[[int, int], bytes]  # position, length -> the bytes there; fewer at the end


class Magic(NamedTuple):
    name: str
    at: int  # from the start of the disk, or, if negative, from its end
    text: bytes


# The filesystems that the agent mounts, by the kernel's driver. That of ext4 also mounts ext2 and ext3.
FILESYSTEMS = (
    Magic("ext4", 1080, b"\x53\xef"),
    Magic("xfs", 0, b"XFSB"),
    Magic("btrfs", 0x10040, b"_BHRfS_M"),
)

# Formats that contain others: an array's member may begin with the filesystem that is on the array.
CONTAINERS = (
    Magic("an encrypted disk (LUKS)", 0, b"LUKS\xba\xbe"),
    Magic("an encrypted disk (BitLocker)", 3, b"-FVE-FS-"),
    Magic("a RAID member (md)", 0, b"\xfc\x4e\x2b\xa9"),
    Magic("a RAID member (md)", 4096, b"\xfc\x4e\x2b\xa9"),
    Magic("a bcache disk", 4120, bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")),
    Magic("a Ceph disk", 0, b"bluestore block device"),
    Magic("a VDO disk", 0, b"dmvdo001"),
    Magic("a Stratis disk", 516, b"!Stra0tis\x86\xff\x02^"),
)

UNSUPPORTED = (
    Magic("an NTFS filesystem", 3, b"NTFS    "),
    Magic("an exFAT filesystem", 3, b"EXFAT   "),
    Magic("a FAT filesystem", 54, b"FAT"),
    Magic("a FAT filesystem", 82, b"FAT32"),
    Magic("an ISO 9660 image", 0x8001, b"CD001"),
    Magic("a UDF filesystem", 0x8001, b"BEA01"),
    Magic("a UDF filesystem", 0x8801, b"NSR0"),
    Magic("an F2FS filesystem", 1024, b"\x10\x20\xf5\xf2"),
    Magic("an EROFS image", 1024, b"\xe2\xe1\xf5\xe0"),
    Magic("a squashfs image", 0, b"hsqs"),
    Magic("a JFS filesystem", 0x8000, b"JFS1"),
    Magic("a ReiserFS filesystem", 0x10034, b"ReIsEr"),
    Magic("a GFS2 filesystem", 0x10000, b"\x01\x16\x19\x70"),
    Magic("an HFS+ filesystem", 1024, b"H+"),
    Magic("an HFS+ filesystem", 1024, b"HX"),
    Magic("an APFS container", 32, b"NXSB"),
    Magic("remains of a GPT partition table", -512, b"EFI PART"),
    Magic("remains of a GPT partition table", -4096, b"EFI PART"),
    Magic("remains of a btrfs filesystem", 64 * MIB + 64, b"_BHRfS_M"),
)

# Copies of ext4's superblock, for blocks of 1, 2 and 4 KiB. A filesystem whose beginning is lost is restored from them.
EXT_COPIES = tuple(Magic("remains of an ext4 filesystem", at, b"\x53\xef") for at in (8193 << 10, 32 * MIB, 128 * MIB))
EXT_MAGIC = 56  # offset in a superblock

SWAP = (b"SWAPSPACE2", b"SWAP-SPACE", b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND", b"LINHIB0001")
PAGES = (4096, 8192, 16384, 32768, 65536)
SECTORS = (512, 4096)
MD = (b"\xfc\x4e\x2b\xa9", b"\xa9\x2b\x4e\xfc")
ZFS = (b"\x0c\xb1\xba\x00\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\xba\xb1\x0c")
BOOT_SECTOR = "a boot sector"
ZFS_LABEL, ZFS_BLOCKS = 256 << 10, 128 << 10  # a label's size, and where its uberblocks begin


@record(frozen=True)
class Contents:
    """The formats found on a disk or a partition. If there are none and it isn't `blank`, the data is unknown."""

    filesystems: Tuple[str, ...] = ()
    table: str = ""  # the kind of partition table, in words
    unsupported: Tuple[str, ...] = ()  # all other formats, in words
    blank: bool = False

    def description(self) -> str:
        found = ["%s filesystem" % name for name in self.filesystems] + [self.table] * bool(self.table)
        return " and ".join(dict.fromkeys([*found, *self.unsupported])) or ("nothing" if self.blank else "unknown data")


def inspect(read: Read, size: int) -> Contents:
    filesystems = tuple(magic.name for magic in FILESYSTEMS if has(read, size, magic))
    unsupported = [magic.name for magic in CONTAINERS + UNSUPPORTED if has(read, size, magic)]
    unsupported += [*_swap(read), *_lvm(read), *_md_at_end(read, size), *_zfs(read, size)]
    if "ext4" not in filesystems:
        unsupported += [copy.name for copy in EXT_COPIES if _ext_copy(read, size, copy)]
    if filesystems:  # the disk may have had a partition table once, whose copy at the end is obsolete
        unsupported = [name for name in unsupported if not name.startswith("remains of")]
    table = _table(read)
    if table == BOOT_SECTOR and (filesystems or unsupported):  # many filesystems have one
        table = ""
    if table:  # whose own copy isn't a remainder
        unsupported = [name for name in unsupported if "GPT" not in name]
    known = filesystems or table or unsupported
    blank = not known and size > 0 and zero(read(0, MIB)) and zero(read(max(0, size - MIB), MIB))
    return Contents(filesystems, table, tuple(dict.fromkeys(unsupported)), blank)


def zero(data: bytes) -> bool:
    return not data.strip(b"\0")


def has(read: Read, size: int, magic: Magic) -> bool:
    at = magic.at if magic.at >= 0 else size + magic.at
    return at >= 0 and at + len(magic.text) <= size and read(at, len(magic.text)) == magic.text


def _ext_copy(read: Read, size: int, copy: Magic) -> bool:
    """Is there a copy of an ext4 superblock? Two bytes alone prove little, so its block size is checked, too."""
    block = read(copy.at, 128) if copy.at + 128 <= size else b""
    return (
        len(block) == 128
        and block[EXT_MAGIC : EXT_MAGIC + 2] == copy.text
        and int.from_bytes(block[24:28], "little") <= 6
    )


def _table(read: Read) -> str:
    for sector in SECTORS:
        if read(sector, 8) == b"EFI PART":
            return "a GPT partition table"
    start = read(0, 512)
    if start[510:512] != b"\x55\xaa":
        return ""
    flags, kinds = start[446:510:16], start[450:510:16]  # of the four entries
    sane = set(flags) <= {0, 0x80} and any(kinds)
    return "an MBR partition table" if sane else BOOT_SECTOR


def _swap(read: Read) -> Iterator[str]:
    if any(read(page - 10, 10).startswith(SWAP) for page in PAGES):
        yield "swap space"


def _lvm(read: Read) -> Iterator[str]:
    if any(read(sector * 512, 8) == b"LABELONE" for sector in range(4)):
        yield "an LVM physical volume"


def _md_at_end(read: Read, size: int) -> Iterator[str]:
    """Versions 0.90 and 1.0 have their superblock near the end, at a multiple of 64 or 4 KiB."""
    places = (size // 65536 * 65536 - 65536, (size // 512 - 16) // 8 * 8 * 512)
    if any(place >= 0 and read(place, 4) in MD for place in places):
        yield "a RAID member (md)"


def _zfs(read: Read, size: int) -> Iterator[str]:
    """A ZFS disk has four labels, two at each end, with at least one uberblock in each."""
    end = size // ZFS_LABEL * ZFS_LABEL
    for label in (0, ZFS_LABEL, end - 2 * ZFS_LABEL, end - ZFS_LABEL):
        blocks = read(label + ZFS_BLOCKS, ZFS_LABEL - ZFS_BLOCKS) if label >= 0 else b""
        if any(blocks[at : at + 8] in ZFS for at in range(0, len(blocks), 1024)):
            yield "a ZFS disk"
            return


# Decisions -----------------------------------------------------------------------------------------------------------


class UnusableDisk(Exception):
    """A disk or folder can't be used. The message is for the job's user."""


class MountChoice(NamedTuple):
    """The part of a disk to mount, and its filesystem."""

    part: str
    filesystem: str


def formattable(disk: Contents, parts: Dict[str, Contents], marked: bool) -> bool:
    """Is there nothing on the disk that could be lost? A `marked` disk was blank when its formatting began, so it may
    have what an interrupted mkfs leaves: unknown data, or copies of a superblock that wasn't written yet."""
    if parts or disk.filesystems or disk.table:
        return False
    return disk.blank or (marked and set(disk.unsupported) <= {EXT_COPIES[0].name})


def choose(path: str, disk: Contents, parts: Dict[str, Contents]) -> MountChoice:
    """The part of the disk at `path` to mount. `parts`: its partitions by path. Raises UnusableDisk."""
    if disk.table and not disk.filesystems:
        return _only_part(path, disk.table, parts)
    if disk.unsupported or disk.table or len(disk.filesystems) > 1:
        raise UnusableDisk(
            "%s has %s, which jobs can't mount; use a volume with an ext4, xfs or btrfs filesystem"
            % (path, disk.description())
        )
    if disk.filesystems:
        return MountChoice(path, disk.filesystems[0])
    raise UnusableDisk(
        "%s has no filesystem (found: %s); make one, for example with mkfs.ext4, on a machine that it's attached to"
        % (path, disk.description())
    )


def _only_part(disk: str, table: str, parts: Dict[str, Contents]) -> MountChoice:
    usable: List[MountChoice] = []
    for part, contents in sorted(parts.items()):
        if len(contents.filesystems) == 1 and not contents.unsupported:
            usable.append(MountChoice(part, contents.filesystems[0]))
    if len(usable) == 1:
        return usable[0]
    if usable:
        raise UnusableDisk(
            "%s has %s with several filesystems (%s); a volume must have exactly one"
            % (disk, table, ", ".join("%s: %s" % (choice.part, choice.filesystem) for choice in usable))
        )
    found = ", ".join("%s: %s" % (part, contents.description()) for part, contents in sorted(parts.items()))
    raise UnusableDisk(
        "%s has %s, but no partition with an ext4, xfs or btrfs filesystem (%s)"
        % (disk, table, found or "no partitions")
    )
