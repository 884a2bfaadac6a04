"""The packages that a carrier is made of, as `packages.lock` pins them: architecture, path on a mirror, SHA-256."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LOCK = Path(__file__).with_name("packages.lock")
ARCHITECTURES = {"x86": "amd64", "arm": "arm64"}  # our names, Debian's
DATED = "20261127T000000Z"  # when these were the newest, for the archive of what mirrors have dropped


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
            f"https://snapshot.debian.org/archive/{archive}/{DATED}/{rest}",
        )


@cache
def packages(architecture: str) -> tuple[Package, ...]:
    """`architecture`: x86 or arm."""
    lines = [line.split() for line in LOCK.read_text().splitlines()]
    return tuple(Package(path, digest) for arch, path, digest in lines if arch == ARCHITECTURES[architecture])


@cache
def release() -> str:
    """Which carrier this version makes: another list, or other choices from it, make another."""
    content = LOCK.read_bytes() + Path(__file__).with_name("bundle.py").read_bytes()
    return hashlib.sha256(content).hexdigest()[:16]
