"""The choice of a task's GPUs among those of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, List, Sequence, Set, Tuple

from ..kernel.task_runtime import TaskError

if TYPE_CHECKING:
    from ...contract.agent import HostGpu, Task


def choose(spec: Task, gpus: Sequence[HostGpu], used: Callable[[], Set[str]]) -> Tuple[List[str], str]:
    """The ids of the GPUs that the task gets, and their vendor. `used` returns the GPUs of other tasks. Raises
    TaskError if too few are free."""
    count = spec.get("gpus") or 0
    vendor = gpus[0]["vendor"] if gpus else ""
    if spec.get("gpu_devices"):
        return [str(name) for name in spec["gpu_devices"]], vendor
    if count == -1:
        return [gpu["id"] for gpu in gpus], vendor
    if not count:
        return [], vendor
    taken = used()
    free = [gpu["id"] for gpu in gpus if gpu["id"] not in taken]
    if len(free) < count:
        raise TaskError("executor_error", "%d GPUs wanted, %d of %d free here" % (count, len(free), len(gpus)))
    return free[:count], vendor
