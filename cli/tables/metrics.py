"""The table of `dstack metrics`: a row for the CPU and one per GPU, with the latest value and its history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cli.render import Table
from cli.tables.cells import Json, size_gb
from cli.tables.runs import newest

MIB = 2**20
BARS = "▁▂▃▄▅▆▇█"
COURSE = 20  # bars


def metrics_table(jobs: Sequence[tuple[Json, list[Any]]]) -> Table:
    table = Table(("JOB", "PART", "UTILIZATION", "MEMORY"))
    for job, metrics in jobs:
        values = {metric["name"]: metric.get("values") or [] for metric in metrics}
        name = str(job["job_spec"].get("job_name") or "")
        if not values.get("cpu_usage_percent"):
            table.add(name, "", "no samples yet", "")
            continue
        cpus = _last(values.get("cpus_detected_num")) or 1
        table.add(name, f"cpu ({cpus:g})", *_cpu(values, cpus))
        for index in range(int(_last(values.get("gpus_detected_num")) or _gpu_count(values))):
            table.add("", f"gpu={index}", *_gpu(job, values, index))
    return table


def course(values: list[float], ceiling: float) -> str:
    """The values, oldest first, as bars."""
    if not values or ceiling <= 0:
        return ""
    step = max(len(values) / COURSE, 1)
    picked = [values[min(int(at * step), len(values) - 1)] for at in range(min(len(values), COURSE))]
    top = len(BARS) - 1
    return "".join(BARS[max(0, min(top, round(value / ceiling * top)))] for value in picked)


def _cpu(values: dict[str, Any], cpus: float) -> tuple[str, str]:
    load = [value / cpus for value in values["cpu_usage_percent"]]
    used = values.get("memory_working_set_bytes") or values.get("memory_usage_bytes") or []
    total = _last(values.get("memory_total_bytes"))
    return f"{load[0]:.0f}% {course(load[::-1], 100)}".rstrip(), _memory(used, total)


def _gpu(job: Json, values: dict[str, Any], index: int) -> tuple[str, str]:
    load = values.get(f"gpu_util_percent_gpu{index}") or []
    used = values.get(f"gpu_memory_usage_bytes_gpu{index}") or []
    placed = newest(job).get("job_provisioning_data") or {}
    gpus = ((placed.get("instance_type") or {}).get("resources") or {}).get("gpus") or []
    total = gpus[index]["memory_mib"] * MIB if index < len(gpus) else None
    return (f"{load[0]:.0f}% {course(load[::-1], 100)}".rstrip() if load else "-"), _memory(used, total)


def _memory(used: list[float], total: float | None) -> str:
    if not used:
        return "-"
    now = size_gb(used[0] / MIB) or "0GB"
    if not total:
        return now
    return f"{now}/{size_gb(total / MIB)} {course(used[::-1], total)}"


def _last(values: list[float] | None) -> float | None:
    return values[0] if values else None


def _gpu_count(values: dict[str, Any]) -> int:
    return sum(1 for name in values if name.startswith("gpu_util_percent_gpu"))
