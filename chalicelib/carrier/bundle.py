"""The contents of a carrier: the small part of its packages that the agent needs.

A test imports every module of the agent with a carrier and nothing else.
"""

from __future__ import annotations

import gzip
import io
import posixpath
import tarfile
from collections.abc import Mapping

from chalicelib.carrier.debian import Files

PYTHON = "python3.11"
LIBRARY = f"usr/lib/{PYTHON}/"
LOADERS = {"x86": "ld-linux-x86-64.so.2", "arm": "ld-linux-aarch64.so.1"}
TRIPLETS = {"x86": "x86_64-linux-gnu", "arm": "aarch64-linux-gnu"}
SHARED = {  # by package: the folder and the names of its libraries
    "libc6": ("lib", ("libc.so.6", "libm.so.6")),
    "zlib1g": ("lib", ("libz.so.1",)),
    "libexpat1": ("lib", ("libexpat.so.1",)),
    "libffi8": ("usr/lib", ("libffi.so.8",)),
    "libssl3": ("usr/lib", ("libssl.so.3", "libcrypto.so.3")),
}
EXTENSIONS = {
    *("_asyncio", "_contextvars", "_ctypes", "_hashlib", "_json", "_queue", "_ssl", "_typing"),
    *("mmap", "resource", "termios"),
}
CODECS = {
    *("__init__", "aliases", "ascii", "charmap", "cp437", "idna", "latin_1", "punycode"),
    *("unicode_escape", "utf_8", "utf_8_sig"),
}
LEFT_OUT = {
    *("config-3.11-x86_64-linux-gnu", "config-3.11-aarch64-linux-gnu", "curses", "dbm", "distutils", "ensurepip"),
    *("idlelib", "lib2to3", "msilib", "multiprocessing", "pydoc_data", "sqlite3", "test", "tkinter", "turtledemo"),
    *("unittest", "venv", "wsgiref", "xml", "xmlrpc"),
}
AUTHORITIES = "usr/share/ca-certificates/mozilla/"
LICENCES = "usr/share/common-licenses"  # the packages' own texts refer to these instead of quoting them
COMMON_LICENCES = ("Apache-2.0", "Artistic", "GPL", "GPL-1", "GPL-2", "LGPL-2.1", "MPL-1.1")


def archive(architecture: str, packages: Mapping[str, bytes]) -> bytes:
    """The carrier as a compressed tar, from the packages by name."""
    return packed(chosen(architecture, {name: Files(content) for name, content in packages.items()}))


def chosen(architecture: str, packages: Mapping[str, Files]) -> dict[str, bytes]:
    """The carrier's files by path."""
    triplet = TRIPLETS[architecture]
    found = {
        "bin/python3": packages["python3.11-minimal"].read(f"usr/bin/{PYTHON}"),
        "lib/loader": packages["libc6"].read(f"lib/{triplet}/{LOADERS[architecture]}"),
    }
    for package, (folder, names) in SHARED.items():
        for name in names:
            found[f"lib/{name}"] = packages[package].read(f"{folder}/{triplet}/{name}")
    for package in ("libpython3.11-minimal", "libpython3.11-stdlib"):
        files = packages[package]
        for path in files:
            if path.startswith(LIBRARY) and _needed(path.removeprefix(LIBRARY)):
                found[path.removeprefix("usr/")] = files.read(path)
    certificates = packages["ca-certificates"]
    pem = [certificates.read(path) for path in sorted(certificates) if path.startswith(AUTHORITIES)]
    found["lib/authorities.pem"] = b"\n".join(pem)
    for name, files in packages.items():
        path = f"usr/share/doc/{name}/copyright"
        if path in set(files):
            found[f"licences/{name}"] = files.read(path)
    for name in COMMON_LICENCES:
        found[f"licences/common-licenses/{name}"] = packages["base-files"].read(f"{LICENCES}/{name}")
    return found


def _needed(path: str) -> bool:
    """Does the agent need this file of the standard library?"""
    first, _, rest = path.partition("/")
    if first == "lib-dynload":
        return rest.split(".")[0] in EXTENSIONS
    if first == "encodings":
        return rest.removesuffix(".py") in CODECS
    return first not in LEFT_OUT and path.endswith(".py")


def packed(files: Mapping[str, bytes]) -> bytes:
    """The files as a compressed tar without dates and owners: the same files give the same bytes."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        folders: set[str] = set()
        for path, content in sorted(files.items()):
            for folder in _parents(path):
                if folder not in folders:
                    folders.add(folder)
                    entry = tarfile.TarInfo(folder)
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(entry)
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o755 if path in ("bin/python3", "lib/loader") else 0o644
            tar.addfile(entry, io.BytesIO(content))
    out = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as compressed:
        compressed.write(raw.getvalue())
    return out.getvalue()


def _parents(path: str) -> list[str]:
    parts = posixpath.dirname(path).split("/")
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
