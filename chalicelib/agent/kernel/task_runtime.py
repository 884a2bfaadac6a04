"""The port of the runtimes that run tasks. There are two: `process` and `docker`.

A task's supervisor calls `begin` and drives the Work that it gets; the agent calls `usage` and `remove`. The two share
only the task's folder, so either may be killed and started again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable, ContextManager, Dict, List, Optional, Protocol, Sequence, Set, Tuple

from .lazy import LazyModule
from .records import record
from .tasks import TaskFolder

if TYPE_CHECKING:
    from . import process_tree
    from .tasks import LaunchedTask
else:
    process_tree = LazyModule(".kernel.process_tree")


COLUMNS, ROWS = 120, 40  # the size of a task's terminal
READ_BYTES = 65536  # the most output to read at once

# Isolation: what separates a machine's tasks from each other and from the agent.
CONTAINER, OWN_USER, NO_ISOLATION = "container", "user", "none"
ALONE = "machine"  # nothing needs to: the machine, itself a container, is for one task, and goes with it


class TaskError(Exception):
    """A task can't run. The message is for its user; `reason` is one of the protocol's reasons."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class Interrupted(Exception):
    """A stop was requested before the task ran."""


class VolumeUser(Protocol):
    """The user that a plain process runs as (`accounts`)."""

    @property
    def held(self) -> object:
        """None if the user outlives the task."""
        ...

    def acting(self) -> ContextManager[None]:
        """Touch files with this user's rights."""
        ...


class MountedVolumes(Protocol):
    """A task's disks and folders, once its disks are mounted (`volumes`)."""

    def enter(self, account: VolumeUser) -> None:
        """For a plain process: make the volumes visible at their paths, to this process and its children."""
        ...

    def for_container(self) -> List[Dict[str, Any]]:
        """The mounts for the engine's create call. Missing folders are created; `hand_over` gives them to the job's
        user."""
        ...

    def hand_over(self, owner: Callable[[], Tuple[int, int]]) -> None: ...

    def check_visible(self, mode: Callable[[str], Optional[int]]) -> None:
        """Raise TaskError if the engine doesn't see the disks. `mode` returns the mode of a path in the container."""
        ...


@record
class TaskContext:
    """The task that a runtime is to begin, and what it may use of the supervisor."""

    folder: TaskFolder
    spec: LaunchedTask
    state: Dict[str, Any]  # as an earlier supervisor of this task left it; empty the first time
    spooled: int  # bytes of output already on disk
    report: Callable[..., None]  # report(state, **fields): write the state and notify the agent
    pause: Callable[[float], None]  # wait that many seconds; raises Interrupted when the task should end
    volumes: MountedVolumes
    gpus: Sequence[str] = ()  # ids of the GPUs given to this task

    @property
    def rebooted(self) -> bool:
        """Has the machine restarted since the task began to run?"""
        return self.state.get("boot") not in (None, process_tree.boot())


class Work(Protocol):
    """A running task."""

    def fileno(self) -> int:
        """The descriptor to select on for output; -1 if there is none at the moment."""
        ...

    def read(self) -> bytes:
        """Return the output that is ready, b"" if there is none. Never blocks."""
        ...

    def ended(self) -> Optional[int]:
        """The exit status once the task is over (128 + signal for a death by signal), else None."""
        ...

    def wake_at(self) -> float:
        """The monotonic time at which to call `ended` even though nothing can be read; infinity for never."""
        ...

    def signal_politely(self) -> None:
        """Send every process the signal on which it ends in good order."""
        ...

    def signal_firmly(self) -> None:
        """Send SIGTERM to the remaining processes."""
        ...

    def kill(self) -> None:
        """Kill every process."""
        ...

    def out_of_memory(self) -> bool:
        """After the end: was the task killed for exceeding its memory limit?"""
        ...

    def step(self) -> str:
        """After the end: the task's shell's record of the commands that it began (`steps`)."""
        ...

    def finish(self) -> bytes:
        """After the end: leave no process behind, and return the rest of the output."""
        ...


@record(frozen=True)
class TaskUsage:
    cpu_usage_micro: int
    memory_usage_bytes: int
    memory_working_set_bytes: int


class TaskRuntime(Protocol):
    name: str

    @property
    def isolation(self) -> str: ...

    def problem(self) -> str:
        """Why the runtime can't be used here; empty if it can."""
        ...

    def storage(self) -> str:
        """The folder where the runtime stores images and containers; empty if it has none, or can't be reached."""
        ...

    def begin(self, context: TaskContext) -> Work: ...

    def usage(self, folder: TaskFolder) -> Optional[TaskUsage]: ...

    def network(self, folder: TaskFolder) -> Optional[int]:
        """A process in a running task's network (`networks`); None if the task shares the machine's. Raises OSError if
        the task doesn't run."""
        ...

    def address(self, folder: TaskFolder) -> str:
        """A running task's IPv4 address in a network of its own that the host may reach; empty if it has none. Raises
        OSError if the task doesn't run."""
        ...

    def remove(self, folder: TaskFolder) -> None:
        """Delete what the task left outside its folder."""
        ...

    def sweep(self, known: Set[str]) -> None:
        """Delete what tasks without a folder have left behind."""
        ...


def isolation(runtimes: Dict[str, TaskRuntime]) -> Dict[str, str]:
    return {name: runtime.isolation for name, runtime in runtimes.items()}


def micros() -> int:
    return time.time_ns() // 1000
