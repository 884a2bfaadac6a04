"""GPUDirect of A3 machines: TCPX of A3 High, TCPXO of A3 Mega. Their network cards write to the GPUs' memory.

It has three parts. The machine's image has modules of the kernel, so whoever wants it names an image that has them.
A plugin for NCCL is installed on the machine, from a container of Google's. A receiver of Google's runs beside the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chalicelib.backends.gcp.config import GCPGpudirect
from chalicelib.domain.offers import Interconnect, Sidecar

_GOOGLES = "us-docker.pkg.dev/gce-ai-infra"
_INSIDE = "/usr/local/nvidia/lib64"  # where the receiver looks for the driver's libraries


@dataclass(frozen=True)
class Software:
    name: str
    folder: str  # of the machine, where the plugin is
    socket: str  # likewise, through which the job reaches the receiver or the cards
    plugin: str
    receiver: str
    args: tuple[str, ...]  # of the receiver
    interfaces: tuple[str, ...]  # the machine's own, and those of the further cards
    drivers: str  # the folder with the driver's libraries
    env: Mapping[str, str] = field(default_factory=dict)
    own: str = ""  # variables that name the machine's own interface,
    others: str = ""  # and the further ones
    entrypoint: str = ""
    ready: str = ""
    shared: tuple[str, ...] = ()  # folders that the receiver shares with the job


TCPX = Software(
    name="GPUDirect-TCPX",
    folder="/var/lib/tcpx",
    socket="/run/tcpx",
    plugin=f"{_GOOGLES}/gpudirect-tcpx/nccl-plugin-gpudirecttcpx-dev:v3.1.9",
    receiver=f"{_GOOGLES}/gpudirect-tcpx/tcpgpudmarxd-dev:v2.0.9",
    entrypoint="/tcpgpudmarxd/build/app/tcpgpudmarxd",
    args=(
        *("--gpu_nic_preset", "a3vm", "--gpu_shmem_type", "fd", "--uds_path", "/run/tcpx"),
        *("--setup_param", "--verbose 128 2 0"),
    ),
    interfaces=("eth0", "eth1", "eth2", "eth3", "eth4"),
    drivers="/var/lib/nvidia/lib64",
    own="NCCL_GPUDIRECTTCPX_CTRL_DEV",
    others="NCCL_GPUDIRECTTCPX_SOCKET_IFNAME",
    env={
        "NCCL_ALGO": "Ring",
        "NCCL_BUFFSIZE": "4194304",
        "NCCL_CROSS_NIC": "0",
        "NCCL_DYNAMIC_CHUNK_SIZE": "524288",
        "NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS": "50000",
        "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX": "/run/tcpx",
        "NCCL_NET_GDR_LEVEL": "PIX",
        "NCCL_NSOCKS_PERTHREAD": "4",
        "NCCL_P2P_NET_CHUNKSIZE": "524288",
        "NCCL_P2P_NVL_CHUNKSIZE": "1048576",
        "NCCL_P2P_PCI_CHUNKSIZE": "524288",
        "NCCL_P2P_PXN_LEVEL": "0",
        "NCCL_PROTO": "Simple",
        "NCCL_SOCKET_NTHREADS": "1",
    },
    shared=("/run/tcpx",),
)
TCPXO = Software(
    name="GPUDirect-TCPXO",
    folder="/var/lib/tcpxo",
    socket="/dev/aperture_devices",
    plugin=f"{_GOOGLES}/gpudirect-tcpxo/nccl-plugin-gpudirecttcpx-dev:v1.0.10",
    receiver=f"{_GOOGLES}/gpudirect-tcpxo/tcpgpudmarxd-dev:v1.0.16",
    args=("--num_hops=2", "--num_nics=8", "--uid=", "--alsologtostderr"),
    interfaces=(
        *("enp0s12", "enp6s0", "enp7s0", "enp13s0", "enp14s0"),
        *("enp134s0", "enp135s0", "enp141s0", "enp142s0"),
    ),
    drivers="/usr/lib/x86_64-linux-gnu",
    own="NCCL_FASTRAK_CTRL_DEV",
    others="NCCL_FASTRAK_IFNAME",
    env={"NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY": "/dev/aperture_devices"},
    ready="buffer manager initialization complete",
)
SOFTWARE: Mapping[str, Software] = {"a3-highgpu-8g": TCPX, "a3-megagpu-8g": TCPXO}


def interconnect(type_name: str, chosen: GCPGpudirect | None, cards: int) -> Interconnect | None:
    """Of a type, if its software is configured, in a region where so many further cards have a network."""
    known = SOFTWARE.get(type_name)
    if chosen is None or known is None or cards < len(known.interfaces) - 1:
        return None
    own, *others = chosen.interfaces or known.interfaces
    return Interconnect(
        name=known.name,
        env={**known.env, "NCCL_SOCKET_IFNAME": own, known.own: own, known.others: ",".join(others)},
        folders=(known.folder,),
        writable=(known.socket,),
        libraries=f"{known.folder}/lib64",
        sidecars=_sidecars(known, chosen),
    )


def _sidecars(known: Software, chosen: GCPGpudirect) -> tuple[Sidecar, ...]:
    plugin = Sidecar(
        image=chosen.plugin or known.plugin,
        args=("install", "--install-nccl"),
        mounts={"/var/lib": "/var/lib"},
        installs=True,
    )
    receiver = Sidecar(
        image=chosen.receiver or known.receiver,
        entrypoint=known.entrypoint,
        args=known.args,
        env={"LD_LIBRARY_PATH": _INSIDE},
        mounts={chosen.driver_libraries or known.drivers: _INSIDE, **{folder: folder for folder in known.shared}},
        ready=known.ready,
    )
    return plugin, receiver
