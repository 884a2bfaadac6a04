"""The table of `dstack metrics`: a row for the CPU and one per GPU, with the latest value and its history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from cli.screen.render import Table
from cli.tables.cells import duration, moment, size_gb
from cli.tables.runs import FINISHED, newest, status_of

if TYPE_CHECKING:
    from chalicelib import contract

Values = dict[str, list[float]]  # by metric
MIB = 2**20
BARS = "▁▂▃▄▅▆▇█"
COURSE = 20  # bars
GAP = "·"  # in place of a bar without samples


class TimeAxis(NamedTuple):
    """The time that all charts cover, so that bars below each other belong to the same moment."""

    start: float
    end: float
    bars: int

    @property
    def each(self) -> float:
        """Seconds per bar."""
        return (self.end - self.start) / max(self.bars - 1, 1) or 1.0

    def bar_of(self, at: float) -> int:
        return max(0, min(self.bars - 1, round((at - self.start) / self.each)))


def axis_of(jobs: Sequence[tuple[contract.Job, list[contract.Series]]]) -> TimeAxis | None:
    series = [sorted(_times(metric)) for _, metrics in jobs for metric in metrics]
    times = [at for each in series for at in each]
    if not times:
        return None
    start, end = min(times), max(times)
    # Each job is sampled at its own times, so the interval of samples is computed per metric.
    apart = min((median(b - a for a, b in pairwise(each)) for each in series if len(each) > 1), default=0.0)
    return TimeAxis(start, end, min(COURSE, round((end - start) / apart) + 1) if apart else 1)


def axis_line(axis: TimeAxis) -> str:
    """The line below the table with the times of the bars."""
    first, last = (datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S") for at in (axis.start, axis.end))
    each = f", {duration(round(axis.each))} each" if axis.bars > 1 else ""
    return f"Bars: {first} to {last}{each}."


def metrics_table(jobs: Sequence[tuple[contract.Job, list[contract.Series]]]) -> Table:
    table = Table(("JOB", "PART", "UTILIZATION", "MEMORY"))
    axis = axis_of(jobs)
    for job, metrics in jobs:
        values = {metric["name"]: metric["values"] or [] for metric in metrics}
        name = str(job["job_spec"].get("job_name") or "")
        if not values.get("cpu_usage_percent"):
            ended = status_of(job) in (*FINISHED, "aborted")
            table.add(name, "", "no samples" if ended else "no samples yet", "")
            continue
        draw = partial(_course_of, {metric["name"]: _times(metric) for metric in metrics}, axis)
        cpus = _last(values.get("cpus_detected_num")) or 1
        table.add(name, f"cpu ({cpus:g})", *_cpu(values, cpus, draw))
        for index in range(int(_last(values.get("gpus_detected_num")) or _gpu_count(values))):
            table.add("", f"gpu={index}", *_gpu(job, values, index, draw))
    return table


def course(times: Sequence[float], axis: TimeAxis | None, values: Sequence[float], ceiling: float) -> str:
    """The values as bars, each the mean of its time."""
    if axis is None or not times or ceiling <= 0:
        return ""
    found: dict[int, list[float]] = {}
    for at, value in zip(times, values, strict=False):
        found.setdefault(axis.bar_of(at), []).append(value)
    return "".join(_bar(found.get(number), ceiling) for number in range(axis.bars))


def _bar(values: list[float] | None, ceiling: float) -> str:
    if values is None:
        return GAP
    top = len(BARS) - 1
    return BARS[max(0, min(top, round(sum(values) / len(values) / ceiling * top)))]


def _times(metric: contract.Series) -> list[float]:
    return [at for at in map(moment, metric["timestamps"] or ()) if at is not None]


Draw = Callable[[str, Sequence[float], float], str]  # from a metric's values and their ceiling


def _course_of(
    times: dict[str, list[float]], axis: TimeAxis | None, metric: str, values: Sequence[float], ceiling: float
) -> str:
    return course(times.get(metric, ()), axis, values, ceiling)


def _cpu(values: Values, cpus: float, draw: Draw) -> tuple[str, str]:
    load = [value / cpus for value in values["cpu_usage_percent"]]
    memory = "memory_working_set_bytes" if values.get("memory_working_set_bytes") else "memory_usage_bytes"
    drawn = draw("cpu_usage_percent", load, 100)
    return f"{load[0]:.0f}% {drawn}".rstrip(), _memory(values, memory, _last(values.get("memory_total_bytes")), draw)


def _gpu(job: contract.Job, values: Values, index: int, draw: Draw) -> tuple[str, str]:
    busy, memory = f"gpu_util_percent_gpu{index}", f"gpu_memory_usage_bytes_gpu{index}"
    load = values.get(busy) or []
    latest = newest(job)
    placed = latest["job_provisioning_data"] if latest else None
    gpus = placed["instance_type"]["resources"]["gpus"] if placed else []
    total = gpus[index]["memory_mib"] * MIB if index < len(gpus) else None
    shown = f"{load[0]:.0f}% {draw(busy, load, 100)}".rstrip() if load else "not reported"
    return shown, _memory(values, memory, total, draw)


def _memory(values: Values, metric: str, total: float | None, draw: Draw) -> str:
    used = values.get(metric) or []
    if not used:
        return "not reported"
    now = size_gb(used[0] / MIB) or "0GB"
    if not total:
        return now
    return f"{now}/{size_gb(total / MIB)} {draw(metric, used, total)}".rstrip()


def _last(values: list[float] | None) -> float | None:
    return values[0] if values else None


def _gpu_count(values: Values) -> int:
    return sum(1 for name in values if name.startswith("gpu_util_percent_gpu"))
