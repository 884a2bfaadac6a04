"""Archives that nobody packs by accident: what the server refuses at upload and the agent before it unpacks."""

from __future__ import annotations

import io
import tarfile

import pytest

Entry = tuple[tarfile.TarInfo, bytes]


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b"") -> Entry:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, link, len(data)
    return member, data


def packed(*entries: Entry) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.GNU_FORMAT) as tar:
        for member, data in entries:
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def soft(name: str, target: str) -> Entry:
    return entry(name, tarfile.SYMTYPE, target)


def hard(name: str, target: str) -> Entry:
    return entry(name, tarfile.LNKTYPE, target)


def folder(name: str) -> Entry:
    return entry(name, tarfile.DIRTYPE)


def sparse(name: str, real_size: int) -> bytes:
    """A GNU sparse file: one byte in the archive that unpacks to `real_size`."""
    archive = bytearray(packed(entry(name, data=b"x")))
    archive[156:157] = tarfile.GNUTYPE_SPARSE
    archive[386:398], archive[398:410] = b"%011o\0" % (real_size - 1), b"%011o\0" % 1  # the one piece: where, how long
    archive[482:483], archive[483:495] = b"\0", b"%011o\0" % real_size
    return sealed(archive)


def pax_sparse(name: str, real_size: int) -> bytes:
    """The same in the younger form, whose map is in the extended header."""
    member, data = entry(name, data=b"x")
    member.pax_headers = {"GNU.sparse.size": str(real_size), "GNU.sparse.map": f"{real_size - 1},1"}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def claiming(name: str, size: int) -> bytes:
    """A header that claims more bytes than follow."""
    archive = bytearray(packed(entry(name, data=b"x")))
    archive[124:136] = b"%011o\0" % size
    return sealed(archive)


def sealed(archive: bytearray) -> bytes:
    """With the checksum of its first header put right."""
    archive[148:156] = b" " * 8
    archive[148:156] = b"%06o\0 " % sum(archive[:512])
    return bytes(archive)


# what it is: the archive, the entry to blame, a word of the reason
HOSTILE: dict[str, tuple[bytes, str, str]] = {
    "sparse": (sparse("d/bomb", 300 << 20), "d/bomb", "holes"),
    "sparse, pax": (pax_sparse("d/bomb", 300 << 20), "d/bomb", "holes"),
    "claims": (claiming("d/big", 1 << 30), "d/big", "more bytes"),
    "absolute": (packed(entry("/etc/cron.d/evil", data=b"x")), "/etc/cron.d/evil", "outside"),
    "up": (packed(entry("d/../../evil", data=b"x")), "d/../../evil", "outside"),
    "device": (packed(entry("d/null", tarfile.CHRTYPE)), "d/null", "device"),
    "disk": (packed(entry("d/sda", tarfile.BLKTYPE)), "d/sda", "device"),
    "pipe": (packed(entry("d/pipe", tarfile.FIFOTYPE)), "d/pipe", "pipe"),
    "soft link out": (packed(soft("d/l", "../../up")), "d/l", "outside"),
    "absolute link": (packed(soft("d/l", "/etc/passwd")), "d/l", "outside"),
    "hard link out": (packed(hard("d/l", "../up")), "d/l", "outside"),
    "chain": (packed(folder("x/y"), soft("x/y/up", "../.."), soft("p", "x/y/up/../etc")), "p", "outside"),
    "chain, other way round": (packed(soft("p", "x/y/up/.."), soft("x/y/up", "../..")), "p", "outside"),
    "chain through a name": (packed(soft("a", "d"), soft("d", "e"), soft("q", "a/b/../..")), "q", "outside"),
    "hard link to a link": (packed(soft("d/e/up", "../.."), hard("up", "d/e/up")), "up", "isn't a file"),
    "hard link to nothing": (packed(hard("d/l", "d/none")), "d/l", "isn't a file"),
    "folder, then link": (packed(folder("d/a"), entry("d/a/f", data=b"x"), soft("d/a", "b")), "d/a", "twice"),
    "link, then folder": (packed(soft("d/a", "b"), folder("d/a")), "d/a", "twice"),
    "link, then below it": (packed(soft("d/a", "b"), entry("d/a/f", data=b"x")), "d/a/f", "below"),
    "below it, then link": (packed(entry("d/a/f", data=b"x"), soft("d/a", "b")), "d/a", "twice"),
    "two links": (packed(soft("d/a", "b"), soft("d/a", "c")), "d/a", "twice"),
    "file, then below it": (packed(entry("d/a", data=b"x"), entry("d/a/f", data=b"x")), "d/a/f", "below"),
    "itself a link": (packed(soft(".", "x")), ".", "twice"),
    "long name": (packed(entry("d/" * 3000 + "f", data=b"x")), "d/d/d/", "long"),
    "entries": (packed(entry("d/a"))[:512] * 20_001 + bytes(1024), "", "20000 entries"),
}
# for tests: to read 20,000 headers takes a second
ALL_HOSTILE = [pytest.param(what, marks=pytest.mark.slow) if what == "entries" else what for what in HOSTILE]

# what a person may well pack
HARMLESS: dict[str, bytes] = {
    "links": packed(
        entry("d/run.sh", data=b"x"),
        soft("d/soft", "run.sh"),
        soft("d/sub/up", "../run.sh"),
        soft("d/sub/deep/round", "../../sub/../run.sh"),
        hard("d/hard", "d/run.sh"),
        soft("d/dangling", "not/here"),
    ),
    "one file twice": packed(entry("d/a", data=b"1"), entry("d/a", data=b"2")),
    "one folder twice": packed(folder("d"), entry("d/a", data=b"1"), folder("d/")),
    "link to a link": packed(entry("d/lib.so.1.2"), soft("d/lib.so.1", "lib.so.1.2"), soft("d/lib.so", "lib.so.1")),
    "below a link, not up": packed(folder("d/v1"), soft("d/now", "v1"), soft("d/app", "now/app")),
    "content": packed(folder("."), entry("./a", data=b"x")),
}
