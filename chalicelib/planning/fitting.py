"""Does a machine satisfy what is asked of it, and if not, why not.

`misfits` is the one place that compares resources with requirements; whether something fits is whether it has none. An
exact value means exactly that, so a large host takes small exact requests only in blocks: equal shares of its CPUs,
memory and GPUs, its disk shared whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from chalicelib.domain.offers import Gpu, Resources
from chalicelib.domain.ranges import Range
from chalicelib.domain.specs.resources import GPUSpec, ResourcesSpec

Blocks = int | Literal["auto"]

_DEFAULT = ResourcesSpec()

# Compute capability by accelerator name (lower case, no blanks), as NVIDIA publishes it.
COMPUTE_CAPABILITY: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("k80",), (3, 7)),
    **dict.fromkeys(("m60",), (5, 2)),
    **dict.fromkeys(("p100",), (6, 0)),
    **dict.fromkeys(("p4", "p40"), (6, 1)),
    **dict.fromkeys(("v100",), (7, 0)),
    **dict.fromkeys(("t4", "t4g", "rtx6000", "rtx8000"), (7, 5)),
    **dict.fromkeys(("a100", "a30"), (8, 0)),
    **dict.fromkeys(("a2", "a10", "a10g", "a16", "a40", "a4000", "a4500", "a5000", "a6000"), (8, 6)),
    **dict.fromkeys(("rtx3060", "rtx3070", "rtx3080", "rtx3080ti", "rtx3090", "rtx3090ti"), (8, 6)),
    **dict.fromkeys(("l4", "l40", "l40s", "rtx4000ada", "rtx5000ada", "rtx6000ada"), (8, 9)),
    **dict.fromkeys(("rtx4060", "rtx4070", "rtx4080", "rtx4090"), (8, 9)),
    **dict.fromkeys(("h100", "h100nvl", "h200", "h200nvl", "gh200"), (9, 0)),
    **dict.fromkeys(("b100", "b200", "gb200"), (10, 0)),
    **dict.fromkeys(("b300", "gb300"), (10, 3)),
    **dict.fromkeys(("rtx5070", "rtx5080", "rtx5090", "rtxpro6000"), (12, 0)),
}

_WITH_ARM = ("gh200", "gb200", "gb300", "gb10", "t4g")  # GPUs that are sold with ARM CPUs only

_VENDORS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("amd", ("mi210", "mi250", "mi250x", "mi300a", "mi300x", "mi325x", "mi350x", "mi355x")),
    ("google", ("v2", "v3", "v4", "v5p", "v5litepod", "v6e")),
    ("intel", ("gaudi", "gaudi2", "gaudi3")),
    ("tenstorrent", ("n150", "n300", "p100a", "p150a")),
)


@dataclass(frozen=True)
class Misfit:
    """One requirement that isn't met, and the smallest change of it that would help."""

    text: str
    hint: str


def squeeze(name: str) -> str:
    return name.lower().replace(" ", "")


def vendor_of(name: str) -> str | None:
    """The maker of an accelerator known by this name."""
    plain = squeeze(name)
    if plain in COMPUTE_CAPABILITY:
        return "nvidia"
    head = plain.split("-")[0]
    return next((vendor for vendor, names in _VENDORS if plain in names or head in names), None)


def misfits(spec: ResourcesSpec, has: Resources, *, provisioned: bool = True) -> Iterator[Misfit]:
    """Every requirement that a machine doesn't meet.

    `provisioned`: the machine is made to order. The default disk size says how large a disk to make, so it isn't asked
    of a host that exists already. And a machine is made with the CPUs that images are made for, unless others are asked
    for: nobody means to find out that a program doesn't run there because it was a cent cheaper.
    """
    arch = spec.cpu.arch or ("x86" if provisioned and not _comes_with_arm(spec.gpu) else None)
    if arch and has.cpu_arch and arch != has.cpu_arch:
        yield Misfit(f"needs {arch} CPUs, has {has.cpu_arch}", f"set `cpu: {has.cpu_arch}:…` with a fitting image")
    if not spec.cpu.count.holds(has.cpus):
        yield Misfit(f"needs {spec.cpu.count} CPUs, has {has.cpus}", f"set `cpu: {has.cpus}`")
    memory = has.memory_mib / 1024
    if not spec.memory.holds(memory):
        yield Misfit(
            f"needs {spec.memory} GB of memory, has {memory:.4g}", f"set `memory: {_near(spec.memory, memory)}`"
        )
    if spec.gpu is not None:
        yield from _gpu_misfits(spec.gpu, has.gpus)
    disk = has.disk.size_mib / 1024
    if spec.disk is not None and (provisioned or spec.disk != _DEFAULT.disk) and not spec.disk.size.holds(disk):
        yield Misfit(f"needs {spec.disk.size} GB of disk, has {disk:.4g}", f"set `disk: {_near(spec.disk.size, disk)}`")


def _comes_with_arm(gpu: GPUSpec | None) -> bool:
    return gpu is not None and any(squeeze(name) in _WITH_ARM for name in gpu.name or ())


def _near(wanted: Range[Any], has: float) -> str:
    if wanted.min is not None and has < wanted.min:
        return f"{int(has)}GB.."
    return f"..{int(has) + 1}GB"


def _gpu_misfits(spec: GPUSpec, gpus: tuple[Gpu, ...]) -> Iterator[Misfit]:
    wanted = f"{spec.count} GPU" + ("" if spec.count.min == spec.count.max == 1 else "s")
    if not gpus:
        if not spec.count.holds(0):
            yield Misfit(f"needs {wanted}, has none", "remove `gpu`")
        return
    if not spec.count.holds(len(gpus)):
        yield Misfit(f"needs {wanted}, has {len(gpus)}", f"set `gpu: {len(gpus)}`")
    gpu = gpus[0]
    gb = round(gpu.memory_mib / 1024)  # drivers report a little less than what the card is sold as
    if spec.vendor and (gpu.vendor or vendor_of(gpu.name)) != spec.vendor:
        yield Misfit(f"needs a GPU by {spec.vendor}, has {gpu.name}", f"set `gpu: {gpu.name}`")
    if spec.name and squeeze(gpu.name) not in {squeeze(name) for name in spec.name}:
        yield Misfit(f"needs {' or '.join(spec.name)}, has {gpu.name}", f"set `gpu: {gpu.name}`")
    if spec.memory and not spec.memory.holds(gb):
        yield Misfit(f"needs {spec.memory} GB a GPU, has {gb}", f"set `gpu: {{memory: {gb}GB}}`")
    if spec.total_memory and not spec.total_memory.holds(gb * len(gpus)):
        yield Misfit(f"needs {spec.total_memory} GB of GPU memory, has {gb * len(gpus)}", "lower `total_memory`")
    if (
        spec.compute_capability
        and (known := COMPUTE_CAPABILITY.get(squeeze(gpu.name), (0, 0))) < spec.compute_capability
    ):
        has = ".".join(map(str, known)) if known != (0, 0) else "an unknown one"
        yield Misfit(
            f"needs compute capability {'.'.join(map(str, spec.compute_capability))}, {gpu.name} has {has}",
            "lower `compute_capability`",
        )


# --- blocks ---------------------------------------------------------------------------------------------------------


def total_blocks(blocks: Blocks, has: Resources) -> int | None:
    """How many blocks a machine is cut into, or None where it can't be cut evenly. A TPU counts as one."""
    gpus = min(len(has.gpus), 1) if has.gpus and has.gpus[0].vendor == "google" else len(has.gpus)
    total = blocks if isinstance(blocks, int) else (min(has.cpus, gpus) if gpus else has.cpus)
    return total if total >= 1 and has.cpus % total == 0 and gpus % total == 0 else None


def share(has: Resources, blocks: int, total: int) -> Resources:
    """What `blocks` of `total` blocks have: an even share, the disk whole."""
    if blocks == total:
        return has
    return has.with_(
        cpus=has.cpus * blocks // total,
        memory_mib=has.memory_mib * blocks // total,
        gpus=has.gpus[: len(has.gpus) * blocks // total],
    )


def blocks_needed(spec: ResourcesSpec, has: Resources, total: int, *, provisioned: bool = True) -> int:
    """The fewest blocks that satisfy the requirements; 0 where none do."""
    for blocks in range(1, total + 1):
        if next(misfits(spec, share(has, blocks, total), provisioned=provisioned), None) is None:
            return blocks
    return 0
