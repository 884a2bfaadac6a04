"""An SSH client that connects to nothing: it records its calls, and its connections follow a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.ssh.config import Hop
from cli.ssh.forwards import Forward

PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKx0gm0vqq7RDS1Gq2kDVd1oYyH4fUvu8bqWUnKa9xLx"
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB1ySR2hMtUJ2nCkkL3xYGZlVh1VCRxZ3sjR0HkTtGtV"
PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"
ME = {"username": "admin", "ssh_public_key": f"{PUBLIC}\n", "ssh_private_key": PRIVATE}


@dataclass
class FakeTunnel:
    """Each look takes one letter: `.` not yet, `u` up, `x` ended. The last one stays."""

    life: str
    error: str = "Connection refused"
    up: bool = False
    ended: bool = False
    pid: int = 2**22 + 1  # of no process

    def fileno(self) -> int:
        return -1

    def poll(self) -> bool:
        letter, self.life = self.life[0], self.life[1:] or self.life
        self.up = self.up or letter == "u"
        return letter != "x"

    def failure(self) -> str:
        return self.error

    def end(self) -> None:
        self.ended = True


@dataclass
class Started:
    config: str
    forwards: list[str]
    files: dict[str, str]  # of its folder


@dataclass
class FakeSsh:
    """`lives`: of its connections, one after the other; the last one for all that follow."""

    lives: list[FakeTunnel] = field(default_factory=lambda: [FakeTunnel("u")])
    reachable: bool = False  # are machines, from here?
    started: list[Started] = field(default_factory=list)
    tunnels: list[FakeTunnel] = field(default_factory=list)

    def start(self, config: Path, alias: str, forwards: Sequence[Forward]) -> Any:
        files = {path.name: path.read_text() for path in config.parent.iterdir()}
        self.started.append(Started(config.read_text(), [one.option for one in forwards], files))
        template = self.lives.pop(0) if len(self.lives) > 1 else self.lives[0]
        tunnel = FakeTunnel(template.life, template.error)
        self.tunnels.append(tunnel)
        return tunnel

    def options(self) -> frozenset[str]:
        return frozenset({"sessiontype", "stdinnull"})

    def own_keys(self, host: str) -> tuple[str, ...]:
        return (f"/home/me/.ssh/for-{host}",)

    def answers(self, hop: Hop) -> bool:
        return self.reachable
