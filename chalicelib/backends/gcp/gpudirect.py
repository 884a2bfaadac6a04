"""GPUDirect of A3 machines: TCPX of A3 High, TCPXO of A3 Mega. Their network cards write to the GPUs' memory.

It has three parts. The machine's image has modules of the kernel, so whoever wants it names an image that has them.
A plugin for NCCL is installed on the machine, from a container of Google's. A receiver of Google's runs beside the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from chalicelib.backends.gcp.config import GCPGpudirect
from chalicelib.backends.kit.tables import table
from chalicelib.domain.offers import Interconnect, Sidecar

_INSIDE = "/usr/local/nvidia/lib64"  # where the receiver looks for the driver's libraries


@dataclass(frozen=True)
class Software:
    name: str
    folder: str  # of the machine, where the plugin is
    socket: str  # likewise, through which the job reaches the receiver or the cards
    plugin: str
    receiver: str
    args: Sequence[str]  # of the receiver
    interfaces: Sequence[str]  # the machine's own, and those of the further cards
    drivers: str  # the folder with the driver's libraries
    env: Mapping[str, str] = field(default_factory=dict)
    own: str = ""  # variables that name the machine's own interface,
    others: str = ""  # and the further ones
    entrypoint: str = ""
    ready: str = ""
    shared: Sequence[str] = ()  # folders that the receiver shares with the job


SOFTWARE: Mapping[str, Software] = {of: Software(**software) for of, software in table("gcp/gpudirect.toml").items()}


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
        args=tuple(known.args),
        env={"LD_LIBRARY_PATH": _INSIDE},
        mounts={chosen.driver_libraries or known.drivers: _INSIDE, **{folder: folder for folder in known.shared}},
        ready=known.ready,
    )
    return plugin, receiver
