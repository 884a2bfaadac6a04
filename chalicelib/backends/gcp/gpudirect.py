"""GPUDirect of A3 machines: TCPX of A3 High, TCPXO of A3 Mega. Their network cards write to the GPUs' memory.

It has three parts. The machine's image has modules of the kernel, so whoever wants it names an image that has them.
A plugin for NCCL is installed on the machine, from a container of Google's. A receiver of Google's runs beside the job.
"""

from __future__ import annotations

from chalicelib.backends.gcp.config import GCPGpudirect
from chalicelib.backends.kit.bodies import filled
from chalicelib.backends.kit.tables import table
from chalicelib.domain.offers import Interconnect

_SOFTWARE = table("gcp/gpudirect.toml")


def interconnect(type_name: str, chosen: GCPGpudirect | None, cards: int) -> Interconnect | None:
    """Of a type, if its software is configured, in a region where so many further cards have a network."""
    known = _SOFTWARE.get(type_name)
    if chosen is None or known is None or cards < len(known["usual"]["interfaces"]) - 1:
        return None
    values = {**known["usual"], **chosen.model_dump(exclude_none=True)}
    own, *others = values["interfaces"]
    return Interconnect.model_validate(filled(known["job"], {**values, "own": own, "others": ",".join(others)}))
