"""The text of cells: prices, ages, sizes and machines, in few characters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cli.screen.render import Cell

if TYPE_CHECKING:
    from chalicelib import contract

Row = dict[str, str | Cell]  # by the titles of columns

STYLE_OF_STATUS = {
    "running": "good",
    "idle": "good",
    "busy": "good",
    "active": "good",
    "done": "dim",
    "terminated": "dim",
    "failed": "bad",
    "error": "bad",
    "no capacity": "bad",
    "pending": "warn",
    "submitted": "warn",
    "provisioning": "warn",
    "pulling": "warn",
    "retrying": "warn",
    "terminating": "warn",
}


def status_cell(text: str) -> Cell:
    style = STYLE_OF_STATUS.get(text, "")
    if text.startswith("exited"):
        style = "dim" if text == "exited (0)" else "bad"
    return Cell(text, style)


def money(amount: float | None) -> str:
    """Dollars with at most four decimals: $0.05, $2, $0.0021."""
    if amount is None:
        return ""
    text = f"{amount:.4f}".rstrip("0").rstrip(".")
    return f"${text}"


def moment(text: str | None) -> float | None:
    """Seconds since 1970 of an ISO date."""
    if not text:
        return None
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def local_time(text: str | None) -> str:
    at = moment(text)
    return "" if at is None else datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def age(text: str | None, now: float) -> str:
    """How long ago, in one unit: now, 30 sec ago, 5 mins ago, yesterday, 3 weeks ago."""
    at = moment(text)
    if at is None:
        return ""
    seconds = max(int(now - at), 0)
    if seconds < 5:
        return "now"
    if seconds < 60:
        return f"{seconds} sec ago"
    for size, name in ((31_536_000, "year"), (2_592_000, "month"), (604_800, "week"), (86_400, "day"), (3600, "hour")):
        if seconds >= size:
            count = seconds // size
            if name == "day" and count == 1:
                return "yesterday"
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    minutes = seconds // 60
    return f"{minutes} min{'s' if minutes > 1 else ''} ago"


def duration(seconds: float | str | None) -> str:
    """Seconds as a configuration writes them: 300 is 5m; `off` for what never ends."""
    if seconds is None:
        return "-"
    if isinstance(seconds, str) or seconds < 0:
        return "off"
    rounded = int(seconds)
    for size, unit in ((604_800, "w"), (86_400, "d"), (3600, "h"), (60, "m")):
        if rounded >= size and rounded % size == 0:
            return f"{rounded // size}{unit}"
    return f"{rounded}s"


def size_gb(mib: float | None) -> str:
    return gigabytes(round(mib / 1024, 1) if mib >= 1024 else mib / 1024) if mib else ""


def gigabytes(amount: float) -> str:
    """An amount of memory as a configuration writes it: 16GB, 512MB."""
    return f"{amount * 1024:.0f}MB" if 0 < amount < 1 else f"{amount:g}GB"


def span(bounds: object, written: Callable[[float], str] = "{:g}".format) -> str:
    """A range as a configuration writes it: 2.., 8GB..16GB, 1."""
    if bounds is None:
        return ""
    if isinstance(bounds, int | float):
        return written(bounds)
    if not isinstance(bounds, Mapping):
        return str(bounds)
    low, high = ("" if bounds.get(end) is None else written(bounds[end]) for end in ("min", "max"))
    return low if low and low == high else f"{low}..{high}"


def gpus(resources: contract.Resources | None) -> str:
    """The accelerators of a machine: A100:80GB:2; `-` for none."""
    found: dict[tuple[str, int], int] = {}
    for gpu in resources["gpus"] if resources else ():
        key = (gpu["name"] or "GPU", gpu["memory_mib"])
        found[key] = found.get(key, 0) + 1
    names = [":".join(p for p in (name, size_gb(memory), str(count)) if p) for (name, memory), count in found.items()]
    return ", ".join(names) or "-"


def machine(resources: contract.Resources | None) -> str:
    """All of a machine: cpu=4 mem=16GB disk=100GB gpu=T4:16GB:1. A host that hasn't reported has none yet."""
    if not resources or not resources.get("cpus"):
        return "-"
    arch = "arm:" if resources.get("cpu_arch") == "arm" else ""
    disk = size_gb(resources["disk"]["size_mib"])
    parts = [f"cpu={arch}{resources['cpus']}", f"mem={size_gb(resources['memory_mib'])}"]
    parts += [f"disk={disk}"] if disk else []
    parts += [f"gpu={gpus(resources)}"] if resources.get("gpus") else []
    return " ".join(parts)


def requirements(resources: Mapping[str, object] | None) -> str:
    """What a configuration requires, or the server read of it: cpu=2.. mem=8GB.. disk=100GB.. gpu=A100:40GB..:1."""
    if not resources:
        return "-"
    cpu = resources.get("cpu")
    cpu = cpu if isinstance(cpu, Mapping) and "count" in cpu else {"count": cpu}
    arch = f"{cpu['arch']}:" if cpu.get("arch") else ""
    parts = [f"cpu={arch}{span(cpu.get('count'))}", f"mem={span(resources.get('memory'), gigabytes)}"]
    disk = resources.get("disk")
    if disk:
        size = disk["size"] if isinstance(disk, Mapping) and "size" in disk else disk
        parts.append(f"disk={span(size, gigabytes)}")
    if shm := resources.get("shm_size"):
        parts.append(f"shm={span(shm, gigabytes)}")
    gpu = gpu_requirement(resources.get("gpu"))
    return " ".join([*parts, f"gpu={gpu}"] if gpu else parts)


def gpu_requirement(gpu: object) -> str:
    """The required accelerators; empty if there are none."""
    if not isinstance(gpu, Mapping):
        return ""
    count = gpu.get("count")
    if isinstance(count, Mapping) and count.get("max") == 0:
        return ""
    capability = gpu.get("compute_capability")
    parts = [
        gpu.get("vendor") or "",
        ",".join(gpu.get("name") or ()),
        span(gpu.get("memory"), gigabytes),
        span(count),
        f"total {span(gpu['total_memory'], gigabytes)}" if gpu.get("total_memory") else "",
        f"cc {'.'.join(str(part) for part in capability)}" if capability else "",
    ]
    return ":".join(part for part in parts if part)


def place(backend: str | None, region: str | None) -> str:
    """`aws (us-east-1)`; a user's own hosts are shown as ssh, as clients call them."""
    if not backend:
        return ""
    name = "ssh" if backend == "remote" else backend
    return f"{name} ({region})" if region and region != backend else name
