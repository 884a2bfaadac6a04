"""InfiniBand of Azure's large machines, and what NCCL and the like must know of it.

The image describes each size's topology in a file, without which NCCL is a fifth slower. Of newer sizes it has none.
"""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.domain.offers import Interconnect

FOLDER = "/opt/microsoft"
_TOPOLOGIES: Mapping[str, str] = {
    "Standard_ND96asr_v4": "ndv4-topo.xml",
    "Standard_ND96amsr_A100_v4": "ndv4-topo.xml",
    "Standard_ND96isr_H100_v5": "ndv5-topo.xml",
    "Standard_ND96isr_H200_v5": "ndv5-topo.xml",
}
_ALWAYS = {
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "NCCL_SOCKET_IFNAME": "eth0",
    "NCCL_IB_PCI_RELAXED_ORDERING": "1",
    "UCX_TLS": "rc",
    "UCX_NET_DEVICES": "mlx5_ib0:1",
}


def interconnect(size: str) -> Interconnect:
    """Of a size that has InfiniBand."""
    topology = _TOPOLOGIES.get(size)
    file = {"NCCL_TOPO_FILE": f"{FOLDER}/{topology}"} if topology else {}
    return Interconnect(name="InfiniBand", env={**_ALWAYS, **file}, folders=(FOLDER,) if topology else ())
