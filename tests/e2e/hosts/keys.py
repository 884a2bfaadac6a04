"""Keys of SSH, as users make them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.harness.debian import run

BITS = {"rsa": ("-b", "2048")}


@dataclass(frozen=True)
class Key:
    path: Path
    passphrase: str = ""

    @property
    def private(self) -> str:
        return self.path.read_text()

    @property
    def public(self) -> str:
        return self.path.with_suffix(".pub").read_text()


def make(path: Path, kind: str = "ed25519", passphrase: str = "") -> Key:
    """`kind`: ed25519, ecdsa or rsa."""
    path.parent.mkdir(parents=True, exist_ok=True)
    run("ssh-keygen", "-q", "-t", kind, *BITS.get(kind, ()), "-N", passphrase, "-C", path.name, "-f", str(path))
    return Key(path, passphrase)
