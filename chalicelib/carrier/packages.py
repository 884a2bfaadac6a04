"""The packages that a carrier is made of, as `packages.lock` pins them: architecture, path on a mirror, SHA-256. Its
first line says when these were the newest, for the archive of what mirrors have dropped. `make carrier-lock` writes it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LOCK = Path(__file__).with_name("packages.lock")
ARCHITECTURES = {"x86": "amd64", "arm": "arm64"}  # our names, Debian's


@dataclass(frozen=True)
class Package:
    path: str
    sha256: str

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[1].split("_")[0]

    @property
    def addresses(self) -> tuple[str, str]:
        archive, rest = self.path.split("/", 1)
        return (
            f"https://deb.debian.org/{self.path}",
            f"https://snapshot.debian.org/archive/{archive}/{_lines()[0][1]}/{rest}",
        )


@cache
def _lines() -> list[list[str]]:
    return [line.split() for line in LOCK.read_text().splitlines()]


@cache
def packages(architecture: str) -> tuple[Package, ...]:
    """`architecture`: x86 or arm."""
    return tuple(Package(path, digest) for arch, path, digest in _lines()[1:] if arch == ARCHITECTURES[architecture])


@cache
def release() -> str:
    """Which carrier this version makes: another list, or other choices from it, make another."""
    files = (LOCK, *(LOCK.with_name(name) for name in ("bundle.py", "debian.py")))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
