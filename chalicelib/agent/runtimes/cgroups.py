"""The control group of a plain process, if the machine lets the agent create one: cgroups version 1, 2 or both.

The group limits the task's CPU and memory, and identifies its processes: one that has left the terminal, the
environment and its parents is still in its group, even after the supervisor was killed. A group is named after its
task, so any process of the agent can end it.

A machine where no group can be created isn't an error: the process runtime promises no isolation, and the plan says so.
There the task's processes are found by their parents, their mark and their user.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Dict, Iterable, Iterator, List, Optional

from ..kernel import process_tree

PERIOD = 100_000
HOLDING = ("unified", "freezer", "pids")  # hierarchies of version 1 that can identify processes, best first
ROUNDS = 100  # of kills, for processes that fork while they are killed


class TaskGroup:
    def __init__(self, task: str, root: str = "/sys/fs/cgroup") -> None:
        self._name, self._root = "dstack-" + task, root

    def make(self, cpu: Optional[float], memory: Optional[int]) -> None:
        quota = int(cpu * PERIOD) if cpu else 0
        if os.path.exists(os.path.join(self._root, "cgroup.controllers")):
            bounds = {"memory.max": str(memory)} if memory else {}
            self._make("", dict(bounds, **({"cpu.max": "%d %d" % (quota, PERIOD)} if cpu else {})))
            return
        if memory:
            self._make("memory", {"memory.limit_in_bytes": str(memory)})
        if cpu:
            self._make("cpu", {"cpu.cfs_period_us": str(PERIOD), "cpu.cfs_quota_us": str(quota)})
        for hierarchy in HOLDING:
            if self._make(hierarchy, {}):
                return

    def _make(self, hierarchy: str, bounds: Dict[str, str]) -> bool:
        parent = os.path.join(self._root, hierarchy)
        if not os.path.isdir(parent):
            return False
        group = os.path.join(parent, self._name)
        try:
            os.makedirs(group, exist_ok=True)
        except OSError:
            return False  # not root, or this part of the tree is read-only
        for name, value in bounds.items():
            try:
                write(os.path.join(group, name), value)
            except OSError:
                continue  # the controller wasn't delegated
        return True

    def groups(self) -> List[str]:
        """The groups that exist: one in version 2, one for each hierarchy in version 1."""
        places = [os.path.join(self._root, name, self._name) for name in ("", *HOLDING, "memory", "cpu")]
        return [place for place in places if os.path.isdir(place)]

    def join(self) -> None:
        """Called by the task's first process; its children inherit the groups."""
        for group in self.groups():
            try:
                write(os.path.join(group, "cgroup.procs"), "0")
            except OSError:
                delete(group)  # no process may be in it

    def processes(self) -> List[int]:
        return sorted({pid for group in self.groups() for below in tree(group) for pid in members(below)})

    def kill(self) -> None:
        """Kill every process in the group, even one that keeps forking."""
        for group in self.groups():
            if try_write(group, "cgroup.kill", "1"):
                continue
            frozen = try_write(group, "freezer.state", "FROZEN") or try_write(group, "cgroup.freeze", "1")
            for _ in range(1 if frozen else ROUNDS):
                found = [pid for below in tree(group) for pid in members(below)]
                process_tree.send(found, signal.SIGKILL)
                if not found:
                    break
            if frozen:
                try_write(group, "freezer.state", "THAWED") or try_write(group, "cgroup.freeze", "0")

    def out_of_memory(self) -> bool:
        return any(map(memory_kills, self.groups()))

    def usage(self) -> Dict[str, int]:
        """The usage of its processes, ended ones included: `cpu` in microseconds, `memory` in bytes, and `idle`,
        the part of it that is reclaimable file cache. Values that no group counts are missing."""
        return usage(self.groups())

    def delete(self) -> None:
        """Delete the group, if it is empty. A process that was just killed stays in it for a moment."""
        for _ in range(ROUNDS):
            for group in self.groups():
                delete(group)
            if not self.groups() or self.processes():
                return
            time.sleep(0.01)


class OwnGroup:
    """That of the container which this process is in: it is read only, and ends with the container."""

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._killed = self._kills()  # before the task

    def groups(self) -> List[str]:
        """The deepest that can be seen from here, in version 2, or for each controller of version 1."""
        return [found for found in map(self._deepest, ("", "memory", "cpuacct")) if found]

    def _deepest(self, controller: str) -> str:
        base = os.path.join(self._root, "sys/fs/cgroup", controller)
        parts = self._path(controller).strip("/").split("/")
        for depth in range(len(parts), -1, -1):
            place = os.path.join(base, *parts[:depth])
            if os.path.exists(os.path.join(place, "cgroup.procs")):
                return place
        return ""

    def _path(self, controller: str) -> str:
        """Perhaps as the host sees it: then the root of the container's mount is the group itself."""
        try:
            with open(os.path.join(self._root, "proc/self/cgroup")) as file:
                lines = [line.rstrip("\n").split(":", 2) for line in file]
        except OSError:
            return ""
        return next((path for _, names, path in lines if controller in names.split(",")), "")

    def usage(self) -> Dict[str, int]:
        return usage(self.groups())

    def out_of_memory(self) -> bool:
        return self._kills() > self._killed

    def _kills(self) -> int:
        return max(map(memory_kills, self.groups()), default=0)

    def join(self) -> None:
        """The task's processes are in it anyway."""

    def processes(self) -> List[int]:
        """Not only the task's."""
        return []

    def kill(self) -> None:
        """That would be the agent's end, too."""

    def delete(self) -> None:
        """It isn't ours."""


def usage(groups: Iterable[str]) -> Dict[str, int]:
    found: Dict[str, int] = {}
    for group in groups:
        cpu = counters(group, "cpu.stat").get("usage_usec")
        nanos = counters(group, "cpuacct.usage").get("")
        if cpu is None and nanos is not None:
            cpu = nanos // 1000
        if cpu is not None:
            found["cpu"] = cpu
        for current in ("memory.current", "memory.usage_in_bytes"):
            memory = counters(group, current).get("")
            if memory is not None:
                cached = counters(group, "memory.stat")
                idle = cached.get("total_inactive_file", cached.get("inactive_file", 0))
                found.update(memory=memory, idle=idle)
    return found


def memory_kills(group: str) -> int:
    """How many of its processes the kernel has killed for want of memory."""
    for name in ("memory.events", "memory.oom_control"):
        killed = counters(group, name).get("oom_kill")
        if killed is not None:
            return killed
    return 0


def counters(group: str, name: str) -> Dict[str, int]:
    """The numbers in a group's file by name; the only number of a file under the empty name; {} without the file."""
    try:
        with open(os.path.join(group, name)) as file:
            pairs = [line.rpartition(" ") for line in file.read().splitlines()]
    except OSError:
        return {}
    return {key: int(value) for key, _, value in pairs if value.isdigit()}


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def try_write(group: str, name: str, text: str) -> bool:
    """Write to a group's file; False if the kernel refuses, or has no such file."""
    path = os.path.join(group, name)
    try:
        if os.path.exists(path):
            write(path, text)
            return True
    except OSError:
        return False
    return False


def tree(group: str) -> Iterator[str]:
    """A group and the groups that the task created in it."""
    return (place for place, _, _ in os.walk(group))


def members(group: str) -> List[int]:
    try:
        with open(os.path.join(group, "cgroup.procs")) as file:
            return [int(line) for line in file if int(line)]  # 0: a process of another pid namespace
    except OSError:
        return []  # deleted meanwhile, or a threaded group


def delete(group: str) -> None:
    for place, _, _ in os.walk(group, topdown=False):
        try:
            os.rmdir(place)
        except OSError:
            return  # deleted already, or still in use; an empty group costs nothing
