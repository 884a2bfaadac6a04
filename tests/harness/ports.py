"""Ports for programs that must be told where to listen, each given to one test alone.

A port that the system finds free may be another's a moment later. These are below those that it finds, and whoever has
one holds an abstract socket named after it, which the system closes when its process ends.
"""

from __future__ import annotations

import random
import socket
from contextlib import suppress

FIRST, COUNT = 11_000, 7_000  # agents give replicas those from 20,000
_claims: list[socket.socket] = []  # for as long as this process lives


def free_port() -> int:
    begin = random.randrange(COUNT)
    for number in range(COUNT):
        port = FIRST + (begin + number) % COUNT
        if _claimed(port) and _unused(port):
            return port
    raise AssertionError(f"no port from {FIRST} to {FIRST + COUNT - 1} is free")


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]


def _claimed(port: int) -> bool:
    claim = socket.socket(socket.AF_UNIX)
    with suppress(OSError):
        claim.bind(f"\0dstack-tests-port-{port}")
        _claims.append(claim)
        return True
    claim.close()
    return False


def _unused(port: int) -> bool:
    with suppress(OSError), socket.socket() as probe:
        probe.bind(("", port))
        return True
    return False
