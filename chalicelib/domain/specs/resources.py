"""Requirements on a machine: `cpu`, `memory`, `gpu`, `disk`, `shm_size`.

The short forms of `cpu` and `gpu` are tokens between colons, in any order, and the shape of a token tells what it is:
`24GB..` has a unit and is memory, `24..` has none and is a count, `A100` starts with a letter and is a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from chalicelib.domain.bounds import MOST_AMOUNT
from chalicelib.domain.ranges import Range
from chalicelib.domain.specs.quantities import MEMORY_RANGE_FORMS, Count, DiskRange, Memory, MemoryRange, memory_range
from chalicelib.domain.specs.reading import JsonSchema, Reads, Spec, fault, is_number

Vendor = Literal["nvidia", "amd", "google", "intel", "tenstorrent"]
_VENDORS = {name: name for name in ("nvidia", "amd", "google", "intel", "tenstorrent")} | {
    "tpu": "google",
    "tt": "tenstorrent",
}
_COUNT = re.compile(r"\d+|\d+\.\.\d*|\.\.\d+")
_GPU_EXAMPLE = "for example `24GB`, `A100:2`, `H100:80GB:8` or `amd:MI300X`"


def tokens(written: str, what: str, classify: Callable[[str], tuple[str, Any]]) -> dict[str, Any]:
    """`a:b:c` as fields. Each kind of token may appear once."""
    found: dict[str, Any] = {}
    for token in (part.strip() for part in written.split(":")):
        if not token:
            raise fault(
                f"invalid-{what}", f"`{written}` has an empty part between colons", f"remove the colon in `{what}`"
            )
        field, value = classify(token)
        if field in found:
            raise fault(f"invalid-{what}", f"`{written}` gives the {field} twice", f"keep one {field}")
        found[field] = value
    return found


def _cpu_token(token: str) -> tuple[str, Any]:
    text = token.replace(" ", "")
    if _COUNT.fullmatch(text):
        return "count", text
    if text.lower() in ("x86", "arm"):
        return "arch", text.lower()
    raise fault(
        "invalid-cpu", f"`{token}` is neither a number of CPUs nor `x86` or `arm`", "for example `4..8` or `arm:16`"
    )


def _gpu_token(token: str) -> tuple[str, Any]:
    text = token.replace(" ", "")
    if vendor := _VENDORS.get(text.lower()):
        return "vendor", vendor
    if text[0].isalpha():
        return "name", _names(text.split(","))
    if any(letter.isalpha() for letter in text):
        return "memory", memory_range(text)
    if _COUNT.fullmatch(text):
        return "count", text
    raise fault("invalid-gpu", f"`{token}` is no GPU name, memory or count", _GPU_EXAMPLE)


def _names(written: Any) -> Any:
    """GPU names as a list; the old `tpu-` prefix is dropped."""
    if isinstance(written, str):
        if "," in written:
            listed = ", ".join(part.strip() for part in written.split(","))
            raise fault("invalid-gpu", "several GPU names are a list here", f"write `name: [{listed}]`")
        written = [written]
    if is_number(written):  # `4090`, which YAML takes for a number
        return [str(written)]
    if not isinstance(written, list | tuple):
        return written
    names = [name.removeprefix("tpu-") if isinstance(name, str) else name for name in written]
    if any(isinstance(name, str) and not name.strip() for name in names):
        raise fault("invalid-gpu", "a GPU name is empty", _GPU_EXAMPLE)
    return names


def _vendor(written: Any) -> Any:
    return _VENDORS.get(written.lower(), written) if isinstance(written, str) else written


def _capability(written: Any) -> Any:
    """`7.5`, `"7.5"` or `[7, 5]`; a whole number `8` is 8.0."""
    if isinstance(written, list | tuple) or written is None:
        return written
    text = str(written) if is_number(written) else written
    if isinstance(text, str) and (found := re.fullmatch(r"(\d{1,4})(?:\.(\d{1,4}))?", text)):
        return int(found[1]), int(found[2] or 0)
    raise fault("invalid-gpu", f"`{written}` isn't a compute capability", "for example `8.0` or `[8, 0]`")


_TEXT = {"type": "string"}
_AMOUNT = {"type": "integer", "minimum": 0}
_NULL = {"type": ["integer", "null"]}
_Part = Annotated[int, Field(ge=0, le=MOST_AMOUNT)]
_CPUS = r" *([0-9]+|[0-9]+ *\.\. *[0-9]*|\.\. *[0-9]+) *"
_ARCHES = {"$comment": "`x86`, `arm`", "type": "string", "pattern": "^([xX]86|[aA][rR][mM])$"}
_ARCH = r" *([xX]86|[aA][rR][mM]) *"


class CPUSpec(Spec):
    """CPUs: how many, and of which architecture."""

    arch: Annotated[
        Literal["x86", "arm"] | None,
        Reads(lambda v: v.lower() if isinstance(v, str) else v, (_ARCHES,)),
        Field(description="`x86` or `arm`."),
    ] = None
    count: Count = Field(default=Range[int](min=2), description="How many CPUs, as a number or a range.")

    SHORT_FORMS: ClassVar[tuple[JsonSchema, ...]] = (
        _AMOUNT,
        _TEXT
        | {"pattern": f"^({_CPUS}|{_ARCH}|{_CPUS}:{_ARCH}|{_ARCH}:{_CPUS})$", "examples": ["4", "2..8", "arm:16.."]},
        {
            "type": "object",
            "properties": {"min": _AMOUNT | _NULL, "max": _AMOUNT | _NULL},
            "minProperties": 1,
            "additionalProperties": False,
        },
    )

    @classmethod
    def read(cls, written: Any) -> Any:
        if isinstance(written, str):
            return tokens(written, "cpu", _cpu_token)
        if isinstance(written, int) and not isinstance(written, bool):
            return {"count": written}
        if isinstance(written, dict) and written and written.keys() <= {"min", "max"}:
            return {"count": written}
        return written


class GPUSpec(Spec):
    """GPUs or other accelerators."""

    vendor: Annotated[Vendor | None, Reads(_vendor, (_TEXT,))] = Field(default=None, description="Who makes it.")
    name: Annotated[tuple[str, ...] | None, Reads(_names, (_TEXT,))] = Field(
        default=None, description="One or several names; any of them will do."
    )
    count: Count = Field(default=Range[int](min=1), description="How many per machine.")
    memory: MemoryRange | None = Field(default=None, description="Memory of one GPU.")
    total_memory: MemoryRange | None = Field(default=None, description="Memory of all GPUs together.")
    compute_capability: Annotated[tuple[_Part, _Part] | None, Reads(_capability, (_TEXT, {"type": "number"}))] = Field(
        default=None, description="The least CUDA compute capability."
    )

    SHORT_FORMS: ClassVar[tuple[JsonSchema, ...]] = (
        _AMOUNT,
        _TEXT | {"examples": ["24GB", "A100:2", "H100:80GB:8"]},
    )

    @classmethod
    def read(cls, written: Any) -> Any:
        if isinstance(written, str):
            return tokens(written, "gpu", _gpu_token)
        if isinstance(written, int) and not isinstance(written, bool):
            return {"count": written}
        return written


class DiskSpec(Spec):
    """The disk of a machine."""

    size: DiskRange = Field(description="Its size.")

    SHORT_FORMS: ClassVar[tuple[JsonSchema, ...]] = MEMORY_RANGE_FORMS

    @classmethod
    def read(cls, written: Any) -> Any:
        return {"size": written} if isinstance(written, str) or is_number(written) else written


class ResourcesSpec(Spec):
    """What a machine must have. An exact value means exactly that; write `16GB..` for "at least"."""

    cpu: CPUSpec = Field(default=CPUSpec(), description="CPUs.")
    memory: MemoryRange = Field(default=Range[float](min=8.0), description="Main memory.")
    shm_size: Memory | None = Field(default=None, description="Size of shared memory (`/dev/shm`).")
    gpu: GPUSpec | None = Field(default=GPUSpec(count=Range[int](min=0)), description="GPUs; none by default.")
    disk: DiskSpec | None = Field(
        default=DiskSpec(size=Range[float](min=100.0)), description="Disk; null for no requirement."
    )
