"""What is on a disk, read from the disk itself: a disk is formatted only if nothing at all is on it.

Everything that could be somebody's data is looked for by its magic number: filesystems, partition tables, parts of
volume groups and arrays, encrypted disks, swap. Unknown formats and damaged ones remain; so a disk counts as blank only
if its first and last MiB are zeroes as well, where almost every format has something.

Pure: the caller passes what reads the disk.
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


# What the agent mounts, by the name of the kernel's driver. That of ext4 also knows its two predecessors.
FILESYSTEMS = (
    Magic("ext4", 1080, b"\x53\xef"),
    Magic("xfs", 0, b"XFSB"),
    Magic("btrfs", 0x10040, b"_BHRfS_M"),
)

# What only looks like a filesystem of its own: an array's member may begin with the filesystem that is on the array.
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

OTHERS = (
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
EXT_MAGIC = 56  # where in a superblock

SWAP = (b"SWAPSPACE2", b"SWAP-SPACE", b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND", b"LINHIB0001")
PAGES = (4096, 8192, 16384, 32768, 65536)
SECTORS = (512, 4096)
MD = (b"\xfc\x4e\x2b\xa9", b"\xa9\x2b\x4e\xfc")
ZFS = (b"\x0c\xb1\xba\x00\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\xba\xb1\x0c")
BOOT_SECTOR = "a boot sector"
ZFS_LABEL, ZFS_BLOCKS = 256 << 10, 128 << 10  # a label's size, and where its uberblocks begin


@record(frozen=True)
class Contents:
    """What was found. All empty and not `blank`: something that nobody here knows."""

    filesystems: Tuple[str, ...] = ()
    table: str = ""  # a partition table, in words
    others: Tuple[str, ...] = ()  # all else, in words
    blank: bool = False

    def words(self) -> str:
        found = ["%s filesystem" % name for name in self.filesystems] + [self.table] * bool(self.table)
        return " and ".join(dict.fromkeys([*found, *self.others])) or ("nothing" if self.blank else "unknown data")


def look(read: Read, size: int) -> Contents:
    filesystems = tuple(magic.name for magic in FILESYSTEMS if has(read, size, magic))
    others = [magic.name for magic in CONTAINERS + OTHERS if has(read, size, magic)]
    others += [*_swap(read), *_lvm(read), *_md_at_end(read, size), *_zfs(read, size)]
    if "ext4" not in filesystems:
        others += [copy.name for copy in EXT_COPIES if _ext_copy(read, size, copy)]
    if filesystems:  # made on a disk that had a table once: its copy at the end means nothing now
        others = [name for name in others if not name.startswith("remains of")]
    table = _table(read)
    if table == BOOT_SECTOR and (filesystems or others):  # which many filesystems have
        table = ""
    if table:  # with its own copy
        others = [name for name in others if "GPT" not in name]
    known = filesystems or table or others
    blank = not known and size > 0 and zero(read(0, MIB)) and zero(read(max(0, size - MIB), MIB))
    return Contents(filesystems, table, tuple(dict.fromkeys(others)), blank)


def zero(data: bytes) -> bool:
    return not data.strip(b"\0")


def has(read: Read, size: int, magic: Magic) -> bool:
    at = magic.at if magic.at >= 0 else size + magic.at
    return at >= 0 and at + len(magic.text) <= size and read(at, len(magic.text)) == magic.text


def _ext_copy(read: Read, size: int, copy: Magic) -> bool:
    """Two bytes alone say little: a copy also has a block size, and the number of its block group."""
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
    flags, kinds = start[446:510:16], start[450:510:16]  # of its four entries
    sane = set(flags) <= {0, 0x80} and any(kinds)
    return "an MBR partition table" if sane else BOOT_SECTOR


def _swap(read: Read) -> Iterator[str]:
    if any(read(page - 10, 10).startswith(SWAP) for page in PAGES):
        yield "swap space"


def _lvm(read: Read) -> Iterator[str]:
    if any(read(sector * 512, 8) == b"LABELONE" for sector in range(4)):
        yield "an LVM physical volume"


def _md_at_end(read: Read, size: int) -> Iterator[str]:
    """Versions 0.90 and 1.0 have their superblock near the end, on a border of 64 or 4 KiB."""
    places = (size // 65536 * 65536 - 65536, (size // 512 - 16) // 8 * 8 * 512)
    if any(place >= 0 and read(place, 4) in MD for place in places):
        yield "a RAID member (md)"


def _zfs(read: Read, size: int) -> Iterator[str]:
    """Four labels, two at each end; at least one uberblock has been written in each."""
    end = size // ZFS_LABEL * ZFS_LABEL
    for label in (0, ZFS_LABEL, end - 2 * ZFS_LABEL, end - ZFS_LABEL):
        blocks = read(label + ZFS_BLOCKS, ZFS_LABEL - ZFS_BLOCKS) if label >= 0 else b""
        if any(blocks[at : at + 8] in ZFS for at in range(0, len(blocks), 1024)):
            yield "a ZFS disk"
            return


# What to do with it --------------------------------------------------------------------------------------------------


class UnusableDisk(Exception):
    """This disk can't be used; the words are for the job's user."""


class MountChoice(NamedTuple):
    """The part of a disk to mount, and its filesystem."""

    part: str
    filesystem: str


def formattable(whole: Contents, parts: Dict[str, Contents], marked: bool) -> bool:
    """Is there nothing that could be lost? `marked`: a disk that was blank when we began to format it may have what a
    cut-off mkfs leaves, which has no name yet, or copies of a superblock that it didn't come to write."""
    if parts or whole.filesystems or whole.table:
        return False
    return whole.blank or (marked and set(whole.others) <= {EXT_COPIES[0].name})


def choose(disk: str, whole: Contents, parts: Dict[str, Contents]) -> MountChoice:
    """`parts`: its partitions. Raises UnusableDisk."""
    if whole.table and not whole.filesystems:
        return _only_part(disk, whole.table, parts)
    if whole.others or whole.table or len(whole.filesystems) > 1:
        raise UnusableDisk(
            "%s has %s, which jobs can't mount; use a volume with an ext4, xfs or btrfs filesystem"
            % (disk, whole.words())
        )
    if whole.filesystems:
        return MountChoice(disk, whole.filesystems[0])
    raise UnusableDisk(
        "%s has no filesystem (found: %s); make one, for example with mkfs.ext4, on a machine that it's attached to"
        % (disk, whole.words())
    )


def _only_part(disk: str, table: str, parts: Dict[str, Contents]) -> MountChoice:
    usable: List[MountChoice] = []
    for part, contents in sorted(parts.items()):
        if len(contents.filesystems) == 1 and not contents.others:
            usable.append(MountChoice(part, contents.filesystems[0]))
    if len(usable) == 1:
        return usable[0]
    if usable:
        raise UnusableDisk(
            "%s has %s with several filesystems (%s); a volume must have exactly one"
            % (disk, table, ", ".join("%s: %s" % (choice.part, choice.filesystem) for choice in usable))
        )
    found = ", ".join("%s: %s" % (part, contents.words()) for part, contents in sorted(parts.items()))
    raise UnusableDisk(
        "%s has %s, but no partition with an ext4, xfs or btrfs filesystem (%s)"
        % (disk, table, found or "no partitions")
    )
