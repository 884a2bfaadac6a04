"""Does a machine meet the requirements, and if not, why not?

`misfits` compares a machine's `measured` sizes with the requirements and lists what is missing; `machine_index` checks
thousands of machines at once, without reasons. An exact value means exactly that, so a large host takes small exact
requests only in blocks: equal shares of its CPUs, memory and GPUs, with a common disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal, NamedTuple

from chalicelib.domain.gpu_names import COMPUTE_CAPABILITY, WITH_ARM, squeeze, vendor_of
from chalicelib.domain.offers import Resources
from chalicelib.domain.ranges import Range
from chalicelib.domain.specs.resources import DiskSpec, GPUSpec, ResourcesSpec

Blocks = int | Literal["auto"]
UNKNOWN = ""

_DEFAULT_SIZE = (100.0, None)  # of a disk, in GB, if none is requested


@dataclass(frozen=True)
class Misfit:
    """One requirement that isn't met, and the smallest change to it that would help."""

    text: str
    hint: str


class Measures(NamedTuple):
    """The sizes of a machine, or of a share of one, to compare with requirements. Sizes are in GB; all GPUs are treated
    like the first."""

    arch: str
    cpus: int
    memory: float
    disk: float
    gpus: int
    gpu: str = ""  # its name
    vendor: str = UNKNOWN
    gpu_memory: int = 0
    capability: tuple[int, int] = (0, 0)

    @property
    def total_memory(self) -> int:
        return self.gpu_memory * self.gpus

    @property
    def plain_gpu(self) -> str:
        return squeeze(self.gpu)


def measured(has: Resources, blocks: int = 1, total: int = 1) -> Measures:
    gpus = len(has.gpus) * blocks // total
    cpus, memory = has.cpus * blocks // total, has.memory_mib * blocks // total / 1024
    own = has.cpu_arch or UNKNOWN, cpus, memory, has.disk.size_mib / 1024
    if not gpus:
        return Measures(*own, 0)
    gpu = has.gpus[0]
    gb = round(gpu.memory_mib / 1024)  # drivers report slightly less than a card's nominal size
    capability = COMPUTE_CAPABILITY.get(squeeze(gpu.name), (0, 0))
    return Measures(*own, gpus, gpu.name, gpu.vendor or vendor_of(gpu.name) or UNKNOWN, gb, capability)


def misfits(spec: ResourcesSpec, has: Resources, *, provisioned: bool = True) -> Iterator[Misfit]:
    """Every requirement that a machine doesn't meet. `provisioned`: the machine is created to order."""
    return _misfits(spec, measured(has), provisioned)


def _misfits(spec: ResourcesSpec, has: Measures, provisioned: bool) -> Iterator[Misfit]:
    arch = arch_wanted(spec, provisioned)
    if arch and has.arch and arch != has.arch:
        yield Misfit(f"needs {arch} CPUs, has {has.arch}", f"set `cpu: {has.arch}:…` and use an image built for it")
    if not spec.cpu.count.holds(has.cpus):
        yield Misfit(f"needs {spec.cpu.count} CPUs, has {has.cpus}", f"set `cpu: {has.cpus}`")
    if not spec.memory.holds(has.memory):
        text = f"needs {spec.memory} GB of memory, has {has.memory:.4g}"
        yield Misfit(text, f"set `memory: {_near(spec.memory, has.memory)}`")
    if spec.gpu is not None:
        yield from _gpu_misfits(spec.gpu, has)
    disk = disk_wanted(spec, provisioned)
    if disk is not None and not disk.size.holds(has.disk):
        yield Misfit(f"needs {disk.size} GB of disk, has {has.disk:.4g}", f"set `disk: {_near(disk.size, has.disk)}`")


def arch_wanted(spec: ResourcesSpec, provisioned: bool) -> str | None:
    """The required CPU architecture; None: any. A bought machine gets the one that most images are built for, unless
    another is requested or comes with the GPU: a cheaper machine is useless if it can't run the program."""
    if spec.cpu.arch or not provisioned:
        return spec.cpu.arch
    with_arm = spec.gpu is not None and any(squeeze(name) in WITH_ARM for name in spec.gpu.name or ())
    return None if with_arm else "x86"


def disk_wanted(spec: ResourcesSpec, provisioned: bool) -> DiskSpec | None:
    """The required disk. The default size only says how large a disk to create, so an existing host needn't have it."""
    size = spec.disk and spec.disk.size
    unasked = not provisioned and size and (size.min, size.max) == _DEFAULT_SIZE
    return None if unasked else spec.disk


def _near(wanted: Range[Any], has: float) -> str:
    if wanted.min is not None and has < wanted.min:
        return f"{int(has)}GB.."
    return f"..{int(has) + 1}GB"


def _gpu_misfits(spec: GPUSpec, has: Measures) -> Iterator[Misfit]:
    wanted = f"{spec.count} GPU" + ("" if spec.count.min == spec.count.max == 1 else "s")
    if not has.gpus:
        if not spec.count.holds(0):
            yield Misfit(f"needs {wanted}, has none", "remove `gpu`")
        return
    if not spec.count.holds(has.gpus):
        yield Misfit(f"needs {wanted}, has {has.gpus}", f"set `gpu: {has.gpus}`")
    if spec.vendor and has.vendor != spec.vendor:
        yield Misfit(f"needs a GPU from {spec.vendor}, has {has.gpu}", f"set `gpu: {has.gpu}`")
    if spec.name and has.plain_gpu not in {squeeze(name) for name in spec.name}:
        yield Misfit(f"needs {' or '.join(spec.name)}, has {has.gpu}", f"set `gpu: {has.gpu}`")
    if spec.memory and not spec.memory.holds(has.gpu_memory):
        yield Misfit(
            f"needs {spec.memory} GB per GPU, has {has.gpu_memory}", f"set `gpu: {{memory: {has.gpu_memory}GB}}`"
        )
    if spec.total_memory and not spec.total_memory.holds(has.total_memory):
        yield Misfit(f"needs {spec.total_memory} GB of GPU memory, has {has.total_memory}", "lower `total_memory`")
    if spec.compute_capability and has.capability < spec.compute_capability:
        known = ".".join(map(str, has.capability)) if has.capability != (0, 0) else "an unknown one"
        yield Misfit(
            f"needs compute capability {'.'.join(map(str, spec.compute_capability))}, {has.gpu} has {known}",
            "lower `compute_capability`",
        )


# --- blocks ---------------------------------------------------------------------------------------------------------


def total_blocks(blocks: Blocks, has: Resources) -> int | None:
    """The number of blocks of a machine; None: it can't be split evenly. All chips of a TPU count as one."""
    gpus = min(len(has.gpus), 1) if has.gpus and has.gpus[0].vendor == "google" else len(has.gpus)
    total = blocks if isinstance(blocks, int) else (min(has.cpus, gpus) if gpus else has.cpus)
    return total if total >= 1 and has.cpus % total == 0 and gpus % total == 0 else None


def share(has: Resources, blocks: int, total: int) -> Resources:
    """The resources of `blocks` of `total` blocks: an even share, but the whole disk."""
    if blocks == total:
        return has
    return has.with_(
        cpus=has.cpus * blocks // total,
        memory_mib=has.memory_mib * blocks // total,
        gpus=has.gpus[: len(has.gpus) * blocks // total],
    )


def blocks_needed(spec: ResourcesSpec, has: Resources, total: int, *, provisioned: bool = True) -> int:
    """The fewest blocks that satisfy the requirements; 0 if none do. Only the lower bounds decide: more blocks could
    only exceed upper bounds."""
    gpus, gb = len(has.gpus), measured(has).gpu_memory
    wanted_gpus = (spec.gpu and spec.gpu.count.min) or 0
    if gb and spec.gpu and spec.gpu.total_memory and spec.gpu.total_memory.min:
        wanted_gpus = max(wanted_gpus, ceil(spec.gpu.total_memory.min / gb))
    least = max(
        1,
        _least(spec.cpu.count.min, has.cpus, total),
        _least(ceil((spec.memory.min or 0) * 1024), has.memory_mib, total),
        _least(wanted_gpus, gpus, total),
    )
    if least > total or next(_misfits(spec, measured(has, least, total), provisioned), None) is not None:
        return 0
    return least


def _least(wanted: int | None, has: int, total: int) -> int:
    """How many of `total` equal shares of `has` reach `wanted`; more than `total` if all of them don't."""
    if not wanted:
        return 0
    return -(-wanted * total // has) if has else total + 1
