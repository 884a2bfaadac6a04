"""Requirements on a machine: `cpu`, `memory`, `gpu`, `disk`, `shm_size`."""

from __future__ import annotations

from pydantic import ConfigDict

from chalicelib.domain.noun import Value
from chalicelib.domain.ranges import Range


class CPUSpec(Value):
    arch: str | None = None
    count: Range[int] = Range[int](min=2)


class GPUSpec(Value):
    vendor: str | None = None
    name: tuple[str, ...] | None = None
    count: Range[int] = Range[int](min=1)
    memory: Range[float] | None = None
    total_memory: Range[float] | None = None
    compute_capability: tuple[int, int] | None = None


class DiskSpec(Value):
    size: Range[float]


class ResourcesSpec(Value):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    cpu: CPUSpec = CPUSpec()
    memory: Range[float] = Range[float](min=8.0)
    shm_size: float | None = None
    gpu: GPUSpec | None = GPUSpec(count=Range[int](min=0))
    disk: DiskSpec | None = DiskSpec(size=Range[float](min=100.0))
