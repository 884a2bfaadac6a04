"""What a host is like. The defaults are those of a rented server on the day it is handed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

PASSWORD = "open sesame"
PASSWORD_HASH = "$6$dstack$3C5.LIKMp4Ff/Ur0cQKrucTlN7UCI/RwqbiMiC5VlDkHRnD/vyNXNVlxjN3bo./8OEnL05Xdvi9pul8gkugC50"


@dataclass(frozen=True)
class Stub:
    """A change to a host's disk before it boots: something that a test host can't have, or mustn't.

    `nodes` are character devices by path: major and minor number; they exist, and no driver answers. `edits` replace
    bytes in a program by as many others.
    """

    files: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    nodes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    edits: Mapping[str, tuple[bytes, bytes]] = field(default_factory=dict)
    personality: str = ""  # what the kernel says of its architecture, as systemd-nspawn names it


@dataclass(frozen=True)
class HostSpec:
    """`boots`: systemd, with an engine; else sshd and nothing more, in a fifteenth of the memory.

    `sudo`: "free" asks for no password, "password" for PASSWORD, "none" refuses. Sizes are limits; 0 is none.
    """

    name: str
    networks: tuple[str, ...] = ("a",)
    hostname: str = ""  # its name, unless given
    boots: bool = True
    docker: bool = True
    user: str = "ubuntu"
    sudo: Literal["free", "password", "none"] = "free"
    groups: tuple[str, ...] = ()
    forwarding: bool = True  # of TCP, by sshd
    host_key: str = "ed25519"
    memory_mib: int = 0
    disk_mib: int = 0
    engine_disk_mib: int = 0  # /var/lib/docker
    stubs: tuple[Stub, ...] = ()


def workers(count: int, **same: object) -> list[HostSpec]:
    return [replace(HostSpec(f"w{number}"), **same) for number in range(1, count + 1)]  # type: ignore[arg-type]
