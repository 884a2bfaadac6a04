"""The control group of a plain-process task, if the machine lets us make one; cgroups version 1, 2 and both at once.

It bounds the task's CPU and memory, and it holds the task's processes together: one that has left the terminal, the
environment and its parents is still in its group, also after the supervisor was killed. Groups are named after the
task and found by that name, so any process of the agent can end them.

A group that can't be made isn't an error: the process runtime promises no isolation, and the plan says so. Then the
task's processes are found by their parents, their mark and their user.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Dict, Iterable, Iterator, List, Optional

from ..kernel import process_tree

PERIOD = 100_000
HOLDING = ("unified", "freezer", "pids")  # hierarchies of version 1 that can hold processes together, best first
ROUNDS = 100  # of killing what forks while it is killed


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
            return False  # we aren't root, or this part of the tree can't be written
        for name, value in bounds.items():
            try:
                write(os.path.join(group, name), value)
            except OSError:
                continue  # a controller that wasn't delegated
        return True

    def groups(self) -> List[str]:
        """Those that exist: one in version 2, one a hierarchy in version 1."""
        places = [os.path.join(self._root, name, self._name) for name in ("", *HOLDING, "memory", "cpu")]
        return [place for place in places if os.path.isdir(place)]

    def join(self) -> None:
        """Called by the task's first process; its children inherit the groups."""
        for group in self.groups():
            try:
                write(os.path.join(group, "cgroup.procs"), "0")
            except OSError:
                delete(group)  # one that no process may be in

    def processes(self) -> List[int]:
        return sorted({pid for group in self.groups() for below in tree(group) for pid in members(below)})

    def kill(self) -> None:
        """End every process in it, also one that keeps forking."""
        for group in self.groups():
            if accepted(group, "cgroup.kill", "1"):
                continue
            held = accepted(group, "freezer.state", "FROZEN") or accepted(group, "cgroup.freeze", "1")
            for _ in range(1 if held else ROUNDS):
                found = [pid for below in tree(group) for pid in members(below)]
                process_tree.send(found, signal.SIGKILL)
                if not found:
                    break
            if held:
                accepted(group, "freezer.state", "THAWED") or accepted(group, "cgroup.freeze", "0")

    def out_of_memory(self) -> bool:
        return any(map(memory_kills, self.groups()))

    def usage(self) -> Dict[str, int]:
        """What its processes use, those that are gone included: `cpu` in microseconds, `memory` in bytes, and `idle`,
        the part of that which is cached files that nobody needs. What no group here counts is missing."""
        return usage(self.groups())

    def delete(self) -> None:
        """Once it is empty. A process that was just killed is in it until the kernel has taken it apart."""
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
        cpu = figures(group, "cpu.stat").get("usage_usec")
        nanos = figures(group, "cpuacct.usage").get("")
        if cpu is None and nanos is not None:
            cpu = nanos // 1000
        if cpu is not None:
            found["cpu"] = cpu
        for current in ("memory.current", "memory.usage_in_bytes"):
            memory = figures(group, current).get("")
            if memory is not None:
                cached = figures(group, "memory.stat")
                idle = cached.get("total_inactive_file", cached.get("inactive_file", 0))
                found.update(memory=memory, idle=idle)
    return found


def memory_kills(group: str) -> int:
    """How many of its processes the kernel has killed for want of memory."""
    for name in ("memory.events", "memory.oom_control"):
        killed = figures(group, name).get("oom_kill")
        if killed is not None:
            return killed
    return 0


def figures(group: str, name: str) -> Dict[str, int]:
    """A file's lines `name figure`, or its only figure under no name; nothing if it isn't there."""
    try:
        with open(os.path.join(group, name)) as file:
            pairs = [line.rpartition(" ") for line in file.read().splitlines()]
    except OSError:
        return {}
    return {key: int(value) for key, _, value in pairs if value.isdigit()}


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def accepted(group: str, name: str, text: str) -> bool:
    """Whether the kernel took this; not if it knows no such file."""
    path = os.path.join(group, name)
    try:
        if os.path.exists(path):
            write(path, text)
            return True
    except OSError:
        return False  # refused: the caller has another way
    return False


def tree(group: str) -> Iterator[str]:
    """A group and those that the task made in it."""
    return (place for place, _, _ in os.walk(group))


def members(group: str) -> List[int]:
    try:
        with open(os.path.join(group, "cgroup.procs")) as file:
            return [int(line) for line in file if int(line)]  # 0: a process that can't be seen from here
    except OSError:
        return []  # deleted meanwhile, or its processes are counted by thread


def delete(group: str) -> None:
    for place, _, _ in os.walk(group, topdown=False):
        try:
            os.rmdir(place)
        except OSError:
            return  # gone, or still in use: an empty group costs nothing
