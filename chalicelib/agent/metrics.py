"""What each running task uses, sampled now and then in a separate thread, because tools and engines can be slow."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from .gpus import Usage as GpuUsage
from .task_runtime import TaskRuntime, micros
from .tasks import TaskFolder


def sample(
    running: List[TaskFolder], runtimes: Dict[str, TaskRuntime], gpu_use: Callable[[], Dict[str, GpuUsage]]
) -> List[Dict[str, Any]]:
    launches = [(folder, folder.launch()) for folder in running]
    cards = gpu_use() if any(launch.get("gpus") for _, launch in launches) else {}
    samples = []
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
                "gpus": [cards[name] for name in launch.get("gpus") or () if name in cards],
            }
        )
    return samples
