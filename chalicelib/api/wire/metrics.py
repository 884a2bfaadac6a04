"""A job's usage as clients chart it: one series per name, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chalicelib.domain.instants import iso
from chalicelib.usecases.runs.metrics import JobUsage

if TYPE_CHECKING:
    from chalicelib import contract


def job_metrics_json(usage: JobUsage) -> contract.JobMetrics:
    points, has = usage.points, usage.has
    series: dict[str, Sequence[float | None]] = {
        "cpu_usage_percent": [point.cpu_percent for point in points],
        "memory_usage_bytes": [point.memory_bytes for point in points],
        "memory_working_set_bytes": [point.working_set_bytes for point in points],
    }
    if has is not None:
        series["cpus_detected_num"] = [has.cpus] * len(points)
        series["memory_total_bytes"] = [has.memory_mib * 2**20] * len(points)
        series["gpus_detected_num"] = [len(has.gpus)] * len(points)
    gpus = min((len(point.gpus) for point in points), default=0)
    for number in range(gpus):
        series[f"gpu_memory_usage_bytes_gpu{number}"] = [point.gpus[number][0] for point in points]
        series[f"gpu_util_percent_gpu{number}"] = [point.gpus[number][1] for point in points]
    times = [iso(point.at) for point in points]
    found = (_series(name, times, values) for name, values in series.items())
    return {"metrics": [each for each in found if each["values"] or not points]}


def _series(name: str, times: list[str], values: Sequence[float | None]) -> contract.Series:
    """A series of the reported values. Clients can't parse a missing value; they show an absent series as missing."""
    reported = [(at, value) for at, value in zip(times, values, strict=True) if value is not None]
    return {"name": name, "timestamps": [at for at, _ in reported], "values": [value for _, value in reported]}
