"""CPU and memory limits of a plain process task, if the machine lets us set them; cgroups version 1 and 2.

A limit that can't be set isn't an error: the process runtime promises no isolation, and the plan says so.
"""

from __future__ import annotations

import os
from typing import List, Optional

PERIOD = 100_000


class CgroupLimits:
    """One group per task and hierarchy, named after the task."""

    def __init__(self, task: str, cpu: Optional[float], memory: Optional[int], root: str = "/sys/fs/cgroup") -> None:
        self._groups: List[str] = []
        if os.path.exists(os.path.join(root, "cgroup.controllers")):
            values = {}
            if memory:
                values["memory.max"] = str(memory)
            if cpu:
                values["cpu.max"] = "%d %d" % (int(cpu * PERIOD), PERIOD)
            self._make(os.path.join(root, "dstack-" + task), values)
            return
        if memory:
            self._make(os.path.join(root, "memory", "dstack-" + task), {"memory.limit_in_bytes": str(memory)})
        if cpu:
            quota = {"cpu.cfs_period_us": str(PERIOD), "cpu.cfs_quota_us": str(int(cpu * PERIOD))}
            self._make(os.path.join(root, "cpu", "dstack-" + task), quota)

    def _make(self, group: str, values: "dict[str, str]") -> None:
        if not values or not os.path.isdir(os.path.dirname(group)):
            return
        try:
            os.makedirs(group, exist_ok=True)
            for name, value in values.items():
                with open(os.path.join(group, name), "w") as file:
                    file.write(value)
        except OSError:
            self._delete(group)  # we can't set limits here (not root, or a controller that wasn't delegated)
            return
        self._groups.append(group)

    def join(self) -> None:
        """Called by the task's first process; its children inherit the groups."""
        for group in self._groups:
            with open(os.path.join(group, "cgroup.procs"), "w") as file:
                file.write("0")

    def out_of_memory(self) -> bool:
        for group in self._groups:
            for name in ("memory.events", "memory.oom_control"):
                try:
                    with open(os.path.join(group, name)) as file:
                        counts = dict(line.split() for line in file)
                except (OSError, ValueError):
                    continue
                if int(counts.get("oom_kill", 0)):
                    return True
        return False

    def delete(self) -> None:
        for group in self._groups:
            self._delete(group)

    @staticmethod
    def _delete(group: str) -> None:
        try:
            os.rmdir(group)
        except OSError:
            return  # never created, or still in use: an empty group costs nothing
