"""InfiniBand of Azure's large machines, and what NCCL and the like must know of it.

The image describes each size's topology in a file, without which NCCL is a fifth slower. Of newer sizes it has none.
"""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.backends.kit.tables import table
from chalicelib.domain.offers import Interconnect

FOLDER = "/opt/microsoft"
_TABLE: Mapping[str, Mapping[str, str]] = table("azure/fabric.toml")


def interconnect(size: str) -> Interconnect:
    """Of a size that has InfiniBand."""
    topology = _TABLE["topologies"].get(size)
    file = {"NCCL_TOPO_FILE": f"{FOLDER}/{topology}"} if topology else {}
    return Interconnect(name="InfiniBand", env={**_TABLE["env"], **file}, folders=(FOLDER,) if topology else ())
