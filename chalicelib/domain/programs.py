"""Releases of the agent, and carriers: each is a blob under its digest, which a new machine's boot script requests."""

from __future__ import annotations

import re

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun

FOLDER = "agent/"
NEWEST = f"{FOLDER}agent.pyz"  # a copy of the newest release
ARCHITECTURES = ("x86", "arm")  # that carriers are made for
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAMED = re.compile(rf"{FOLDER}(?:carrier-)?([0-9a-f]{{64}})\.(?:pyz|tar\.gz)")


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def blob_of(digest: str) -> str:
    return f"{FOLDER}{digest}.pyz"


def digest_of(blob: str) -> str | None:
    """Of a program or a carrier; None: the blob is another."""
    found = _NAMED.fullmatch(blob)
    return found and found[1]


def carrier_blob(digest: str) -> str:
    return f"{FOLDER}carrier-{digest}.tar.gz"


def newest_carrier(architecture: str) -> str:
    """The blob that names the newest carrier for x86 or arm: its release, and its SHA-256."""
    return f"{FOLDER}carrier-{architecture}"


def newest_of(record: bytes | None) -> tuple[str, str]:
    """The release and the SHA-256 in such a blob; both empty if there is none."""
    release, _, digest = ("" if record is None else record.decode()).partition(" ")
    return release, digest


class Program(Noun):
    """The time in which a release of the agent, or a carrier, was the newest: machines bought during it may fetch it
    again."""

    digest: str  # SHA-256
    first_at: Micros
    last_at: Micros  # to the day

    def place(self) -> keys.Place:
        return keys.Place(keys.program(self.digest))
