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
    "libc6": ("lib", ("libc.so.6", "libm.so.6", "libresolv.so.2")),
    "zlib1g": ("lib", ("libz.so.1",)),
    "libexpat1": ("lib", ("libexpat.so.1",)),
    "libffi8": ("usr/lib", ("libffi.so.8",)),
    "libssl3": ("usr/lib", ("libssl.so.3", "libcrypto.so.3")),
    # Debian's sshd is linked with the rest, though the agent's configuration uses next to nothing of it.
    "libaudit1": ("lib", ("libaudit.so.1",)),
    "libcap-ng0": ("lib", ("libcap-ng.so.0",)),
    "libcap2": ("lib", ("libcap.so.2",)),
    "libcom-err2": ("lib", ("libcom_err.so.2",)),
    "libcrypt1": ("lib", ("libcrypt.so.1",)),
    "libgcrypt20": ("usr/lib", ("libgcrypt.so.20",)),
    "libgpg-error0": ("lib", ("libgpg-error.so.0",)),
    "libgssapi-krb5-2": ("usr/lib", ("libgssapi_krb5.so.2",)),
    "libk5crypto3": ("usr/lib", ("libk5crypto.so.3",)),
    "libkeyutils1": ("lib", ("libkeyutils.so.1",)),
    "libkrb5-3": ("usr/lib", ("libkrb5.so.3",)),
    "libkrb5support0": ("usr/lib", ("libkrb5support.so.0",)),
    "liblz4-1": ("usr/lib", ("liblz4.so.1",)),
    "liblzma5": ("lib", ("liblzma.so.5",)),
    "libnsl2": ("usr/lib", ("libnsl.so.2",)),
    "libnss-wrapper": ("usr/lib", ("libnss_wrapper.so",)),
    "libpam0g": ("lib", ("libpam.so.0",)),
    "libpcre2-8-0": ("usr/lib", ("libpcre2-8.so.0",)),
    "libselinux1": ("lib", ("libselinux.so.1",)),
    "libsystemd0": ("usr/lib", ("libsystemd.so.0",)),
    "libtirpc3": ("lib", ("libtirpc.so.3",)),
    "libuid-wrapper": ("usr/lib", ("libuid_wrapper.so",)),
    "libwrap0": ("usr/lib", ("libwrap.so.0",)),
    "libzstd1": ("usr/lib", ("libzstd.so.1",)),
}
PROGRAMS = {  # by path in a carrier: the package and the path there
    "bin/python3": ("python3.11-minimal", f"usr/bin/{PYTHON}"),
    "bin/sshd": ("openssh-server", "usr/sbin/sshd"),
    "bin/ssh-keygen": ("openssh-client", "usr/bin/ssh-keygen"),
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
COMMON_LICENCES = (
    *("Apache-2.0", "Artistic", "CC0-1.0", "GPL", "GPL-1", "GPL-2", "GPL-3", "LGPL", "LGPL-2", "LGPL-2.1", "MPL-1.1"),
)


def archive(architecture: str, packages: Mapping[str, bytes]) -> bytes:
    """The carrier as a compressed tar, from the packages by name."""
    return packed(chosen(architecture, {name: Files(content) for name, content in packages.items()}))


def chosen(architecture: str, packages: Mapping[str, Files]) -> dict[str, bytes]:
    """The carrier's files by path."""
    triplet = TRIPLETS[architecture]
    found = {path: packages[package].read(there) for path, (package, there) in PROGRAMS.items()}
    found["lib/loader"] = packages["libc6"].read(f"lib/{triplet}/{LOADERS[architecture]}")
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
            entry.size, entry.mode = len(content), 0o755 if path in (*PROGRAMS, "lib/loader") else 0o644
            tar.addfile(entry, io.BytesIO(content))
    out = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as compressed:
        compressed.write(raw.getvalue())
    return out.getvalue()


def _parents(path: str) -> list[str]:
    parts = posixpath.dirname(path).split("/")
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
