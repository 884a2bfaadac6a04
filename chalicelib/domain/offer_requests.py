"""What a market is asked for: a provider's offers can't be listed, or are others a minute later, so each request names
what is needed. Names are lower case; None means any."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from pydantic import Field

from chalicelib.domain.noun import Value
from chalicelib.domain.ranges import Range
from chalicelib.domain.specs.resources import GPUSpec, ResourcesSpec

_WITH_OR_WITHOUT = GPUSpec(count=Range[int](min=0))
NAMED = 3  # regions, zones or types that its words name


class OfferRequest(Value):
    resources: ResourcesSpec  # of a whole machine
    spot: bool | None = False  # None: either
    max_price: float | None = None
    regions: tuple[str, ...] | None = None
    zones: tuple[str, ...] | None = None
    instance_types: tuple[str, ...] | None = None
    nodes: int = 1  # how many of an offer are needed at once, which must reach each other
    options: dict[str, Any] = Field(default_factory=dict)  # what `backend_options` say to this market

    @property
    def in_words(self) -> str:
        """As a configuration would say it: `2 of cpu=8.. memory=64GB.. gpu=H100:8, spot, in us-ks-2`."""
        market = {True: "spot", False: "on-demand", None: "spot or on-demand"}[self.spot]
        named = (("in", self.regions), ("in", self.zones), ("of", self.instance_types))
        several = f"{self.nodes} of " if self.nodes > 1 else ""
        parts = [
            f"{several}{_in_words(self.resources)}",
            market,
            *([] if self.max_price is None else [f"${self.max_price:g} an hour at most"]),
            *(f"{word} {_listed(names)}" for word, names in named if names),
            *(f"{name}={value}" for name, value in self.options.items() if value is not None),
        ]
        return ", ".join(parts)

    @property
    def key(self) -> str:
        """Two equal requests have one."""
        return sha256(self.model_dump_json().encode()).hexdigest()[:32]


def _in_words(resources: ResourcesSpec) -> str:
    cpu, gpu, disk = resources.cpu, resources.gpu, resources.disk
    parts = [f"cpu={cpu.arch + ':' if cpu.arch else ''}{cpu.count}", f"memory={_sizes(resources.memory)}"]
    if disk is not None:
        parts.append(f"disk={_sizes(disk.size)}")
    if gpu is not None and gpu.count.max != 0 and gpu != _WITH_OR_WITHOUT:
        capability = gpu.compute_capability and ".".join(map(str, gpu.compute_capability))
        details = [
            gpu.vendor or "",
            ",".join(gpu.name or ()),
            _sizes(gpu.memory) if gpu.memory else "",
            str(gpu.count),
            f"total {_sizes(gpu.total_memory)}" if gpu.total_memory else "",
            f"cc {capability}" if capability else "",
        ]
        parts.append(f"gpu={':'.join(filter(None, details))}")
    return " ".join(parts)


def _sizes(amounts: Range[float]) -> str:
    low, high = ("" if each is None else f"{each:g}GB" for each in (amounts.min, amounts.max))
    return low if low == high else f"{low}..{high}"


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - NAMED
    return f"{', '.join(names[:NAMED])}{f' and {more} more' if more > 0 else ''}"
