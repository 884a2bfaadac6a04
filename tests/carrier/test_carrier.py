"""What a carrier is made of, with packages of a few bytes; the real one is for `test_carrier_real`."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile

import pytest

from chalicelib.carrier import bundle, download
from chalicelib.carrier.debian import Files
from chalicelib.carrier.make import make
from chalicelib.carrier.packages import ARCHITECTURES, Package, packages, release
from chalicelib.errors import Invalid, Refused


def tar(files: dict[str, bytes], links: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz") as packed:
        for path, content in files.items():
            member = tarfile.TarInfo(f"./{path}")
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
        for path, target in links.items():
            member = tarfile.TarInfo(f"./{path}")
            member.type, member.linkname = tarfile.SYMTYPE, target
            packed.addfile(member)
    return out.getvalue()


def part(name: str, content: bytes) -> bytes:
    return (
        f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode() + content + b"\n" * (len(content) % 2)
    )


def deb(files: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    data = tar(files, links or {})
    return b"!<arch>\n" + part("debian-binary", b"2.0\n") + part("control.tar.xz", b"odd") + part("data.tar.xz", data)


def small(name: str) -> bytes:
    triplet = "x86_64-linux-gnu"
    files = {f"usr/share/doc/{name}/copyright": f"licence of {name}".encode()}
    links: dict[str, str] = {}
    if name in bundle.SHARED:
        folder, names = bundle.SHARED[name]
        for library in names:
            files[f"{folder}/{triplet}/{library}.9"] = library.encode()
            links[f"{folder}/{triplet}/{library}"] = f"{library}.9"
    if name == "base-files":
        files |= {f"{bundle.LICENCES}/{each}": b"text" for each in bundle.COMMON_LICENCES if each != "GPL"}
        links[f"{bundle.LICENCES}/GPL"] = "GPL-2"
    if name == "libc6":
        files[f"lib/{triplet}/ld-linux-x86-64.so.2"] = b"loader"
    for package, path in bundle.PROGRAMS.values():
        if name == package:
            files[path] = path.encode()
    if name == "libpython3.11-stdlib":
        for path in (
            "json/decoder.py",
            "test/big.py",
            "encodings/koi8_r.py",
            "lib-dynload/_ssl.so",
            "lib-dynload/nis.so",
        ):
            files[f"usr/lib/python3.11/{path}"] = path.encode()
    if name == "ca-certificates":
        files |= {f"usr/share/ca-certificates/mozilla/{each}.crt": each.encode() for each in ("b", "a")}
    return deb(files, links)


def made(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content))) as packed:
        found = {member.name: packed.extractfile(member) for member in packed.getmembers() if member.isfile()}
        return {name: file.read() for name, file in found.items() if file is not None}


@pytest.mark.slow
def test_a_carrier_has_the_part_of_its_packages_that_the_agent_needs() -> None:
    content = make("x86", lambda wanted: small(wanted.name))
    found = made(content)
    assert found["bin/python3"] == b"usr/bin/python3.11" and found["lib/loader"] == b"loader"
    assert found["bin/sshd"] == b"usr/sbin/sshd"
    assert found["lib/libssl.so.3"] == b"libssl.so.3", "what the link leads to"
    assert found["lib/authorities.pem"] == b"a\nb"
    library = {path for path in found if path.startswith("lib/python3.11/")}
    assert library == {"lib/python3.11/json/decoder.py", "lib/python3.11/lib-dynload/_ssl.so"}
    assert {path for path in found if path.startswith("licences/")} == {
        *(f"licences/{each.name}" for each in packages("x86")),
        *(f"licences/common-licenses/{each}" for each in bundle.COMMON_LICENCES),
    }
    assert content == make("x86", lambda wanted: small(wanted.name)), "the same packages, the same bytes"


def test_what_is_no_package_or_lacks_a_file_is_named() -> None:
    with pytest.raises(Invalid, match="isn't a Debian package"):
        Files(b"<html>")
    with pytest.raises(Invalid, match="has no files"):
        Files(b"!<arch>\n" + part("debian-binary", b"2.0\n"))
    with pytest.raises(Invalid, match="has no file usr/bin/python3"):
        Files(deb({"usr/bin/other": b""})).read("usr/bin/python3")


def test_both_architectures_are_made_of_the_same_packages_by_digest() -> None:
    names = [sorted(each.name for each in packages(architecture)) for architecture in ARCHITECTURES]
    assert names[0] == names[1] and set(bundle.SHARED) < set(names[0])
    for each in (*packages("x86"), *packages("arm")):
        assert len(each.sha256) == 64 and each.path.startswith(("debian/pool/", "debian-security/pool/"))
        assert each.addresses[0] == f"https://deb.debian.org/{each.path}"
    assert len(release()) == 16


WANTED = Package("debian/pool/main/z/zlib/zlib1g_1_amd64.deb", hashlib.sha256(b"right").hexdigest())


def test_a_package_that_a_mirror_has_dropped_comes_from_the_archive() -> None:
    addresses = []

    def read(address: str) -> bytes:
        addresses.append(address)
        if "snapshot" in address:
            return b"right"
        raise OSError("HTTP Error 404: Not Found")

    assert download.package(WANTED, read) == b"right"
    assert addresses[1].startswith("https://snapshot.debian.org/archive/debian/2026")
    assert addresses[1].endswith("Z/pool/main/z/zlib/zlib1g_1_amd64.deb")


def test_a_package_that_was_changed_on_the_way_is_refused() -> None:
    with pytest.raises(Refused) as problem:
        download.package(WANTED, lambda address: b"wrong")
    assert problem.value.message.count("its SHA-256 isn't the pinned one") == 2
    assert "deb.debian.org" in problem.value.hint
