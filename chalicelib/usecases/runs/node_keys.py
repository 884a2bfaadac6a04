"""What the nodes of one attempt need to reach each other by SSH: a key pair, a host key, and a port each.

The keys are derived from the install key, as bootstrap tokens are. So all nodes have the same keys whenever their
agents call, each attempt has its own, and nothing is stored that would have to be sealed or erased. The keys of one
attempt reveal nothing about those of others.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from chalicelib.domain.gangs import Gang
from chalicelib.engine.bootstrap_tokens import keyed
from chalicelib.planning.jobs.nodes import Nodes

if TYPE_CHECKING:
    from chalicelib.contract.agent import NodeSsh, TaskNode

# Below the ports that kernels use for outgoing connections, and away from those of frameworks' rendezvous. Each attempt
# has its own port, so that neither an earlier attempt that is still ending nor another run on the host is in the way.
FIRST_PORT, PORTS = 22000, 6000


def node_ssh(install_key: bytes, gang: Gang, nodes: Nodes, names: Sequence[str], rank: int) -> NodeSsh:
    """The task's field `node_ssh`. `names`: the names of the nodes' jobs, by rank."""
    private, public = _pair(_secret(install_key, gang, "login"))
    host_private, host_public = _pair(_secret(install_key, gang, "host"))
    first = FIRST_PORT + int.from_bytes(hashlib.sha256(gang.id.encode()).digest()[:8], "big") % PORTS
    seen: Counter[str] = Counter()
    listed: list[TaskNode] = []
    for name, address in zip(names, nodes.addresses, strict=True):
        listed.append({"name": name, "address": address, "port": first + seen[address]})
        seen[address] += 1
    return {
        "rank": rank,
        "private_key": private,
        "public_key": public,
        "host_private_key": host_private,
        "host_public_key": host_public,
        "nodes": listed,
    }


def hostfile(nodes: Nodes, names: Sequence[str]) -> str:
    """The hostfile with the nodes' addresses; if some share an address, with their names, whose ports `ssh` knows."""
    shared = len(set(nodes.addresses)) < len(nodes.addresses)
    return (replace(nodes, addresses=tuple(names)) if shared else nodes).hostfile()


def _secret(install_key: bytes, gang: Gang, purpose: str) -> bytes:
    return keyed(install_key, f"nodes/{gang.id}/{purpose}")


def _pair(secret: bytes) -> tuple[str, str]:
    """The private key in OpenSSH's format, and the public line without a comment."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(secret)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    return private.decode(), public.decode()
