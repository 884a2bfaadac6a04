"""The usage of each running task, sampled in a separate thread because tools and engines can be slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Dict, List, Set, cast

from ..kernel.task_runtime import TaskRuntime, micros
from ..kernel.tasks import TaskFolder
from .gpu_tools import Usage as GpuUsage

if TYPE_CHECKING:
    from ...contract.agent import GpuLoad, MetricPoint


def sample(
    running: List[TaskFolder], runtimes: Dict[str, TaskRuntime], gpu_usage: Callable[[Set[str]], Dict[str, GpuUsage]]
) -> List[MetricPoint]:
    launches = [(folder, folder.launch()) for folder in running]
    specs = [launch.get("spec") for _, launch in launches if launch.get("gpus")]
    vendors = {spec.get("gpu_vendor", "nvidia") if spec else "nvidia" for spec in specs}
    gpus = gpu_usage(vendors) if vendors else {}
    samples: List[MetricPoint] = []
    for folder, launch in launches:
        runtime = runtimes.get(launch.get("runtime", ""))
        used = runtime.usage(folder) if runtime else None
        if used is None:
            continue
        samples.append(
            {
                "task": folder.task,
                "at": micros(),
                "cpu_usage_micro": used.cpu_usage_micro,
                "memory_usage_bytes": used.memory_usage_bytes,
                "memory_working_set_bytes": used.memory_working_set_bytes,
                "gpus": [cast("GpuLoad", gpus.get(name, {})) for name in launch.get("gpus") or ()],
            }
        )
    return samples
