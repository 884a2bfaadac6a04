"""What a task's supervisor needs from the runtime that runs it. There are two: `process` and `docker`.

A runtime is used from two sides. The supervisor calls `begin` and drives the Work it gets; the agent calls `usage` and
`remove`. They share only the task's folder, so either may be killed and started again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable, ContextManager, Dict, List, Optional, Protocol, Sequence, Set, Tuple

from .lazy import LazyModule
from .records import record
from .tasks import TaskFolder

if TYPE_CHECKING:
    from . import process_tree
else:
    process_tree = LazyModule(".kernel.process_tree")

Spec = Dict[str, Any]

COLUMNS, ROWS = 120, 40  # of a task's terminal
READ_BYTES = 65536  # of its output, at once

# What separates the tasks of a machine from each other and from the agent.
CONTAINER, OWN_USER, NO_ISOLATION = "container", "user", "none"
ALONE = "machine"  # nothing needs to: the machine, itself a container, is for one task, and goes with it


class TaskError(Exception):
    """A task can't run; the message is for its user. `reason` is one of the protocol's."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class Interrupted(Exception):
    """A stop was requested before the task ran."""


class VolumeUser(Protocol):
    """The user of a plain process (`accounts`)."""

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
        """For a plain process: from now on this process, and what it starts, finds the volumes at their paths."""
        ...

    def for_container(self) -> List[Dict[str, Any]]:
        """The mounts for the engine's create call. Missing folders are made, and given to the job's user by
        `hand_over`."""
        ...

    def hand_over(self, owner: Callable[[], Tuple[int, int]]) -> None: ...

    def unseen(self, mode: Callable[[str], Optional[int]]) -> None:
        """Refuses a container whose engine doesn't see the disks. `mode`: that of a path in the container."""
        ...


@record
class Began:
    """What the supervisor passes to `begin`."""

    folder: TaskFolder
    spec: Spec
    state: Dict[str, Any]  # as an earlier supervisor of this task left it; empty the first time
    spooled: int  # bytes of output already on disk
    report: Callable[..., None]  # report(state, **fields): writes the state and notifies the agent
    pause: Callable[[float], None]  # wait so many seconds, or raise Interrupted when the task should end
    volumes: MountedVolumes  # its disks are mounted; the runtime shows them to the task
    gpus: Sequence[str] = ()  # ids of the GPUs given to this task

    @property
    def rebooted(self) -> bool:
        """Has the machine restarted since the task began to run?"""
        return self.state.get("boot") not in (None, process_tree.boot())


class Work(Protocol):
    """A running task."""

    def fileno(self) -> int:
        """What to select on for output; -1 if there is nothing now."""
        ...

    def read(self) -> bytes:
        """Output that is ready, or b"" if there is none (never blocks)."""
        ...

    def ended(self) -> Optional[int]:
        """The exit status once it is over (128 + signal for a death by signal), else None."""
        ...

    def wake_at(self) -> float:
        """When (monotonic) to call `ended` even though nothing can be read; infinity for never."""
        ...

    def signal_politely(self) -> None:
        """Ask every process to end, with the signal that it handles."""
        ...

    def signal_firmly(self) -> None:
        """SIGTERM to the processes that are left."""
        ...

    def kill(self) -> None:
        """End everything now."""
        ...

    def out_of_memory(self) -> bool:
        """After the end: was it killed for exceeding its memory limit?"""
        ...

    def step(self) -> str:
        """After the end: what the task's shell wrote about the command that it began last (`steps`)."""
        ...

    def finish(self) -> bytes:
        """After the end: leave no process behind, return the last of the output."""
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
        """Why it can't be used here; empty if it can."""
        ...

    def storage(self) -> str:
        """The folder where it keeps what tasks run from; empty if there is none, or it doesn't tell now."""
        ...

    def begin(self, began: Began) -> Work: ...

    def usage(self, folder: TaskFolder) -> Optional[TaskUsage]: ...

    def network(self, folder: TaskFolder) -> Optional[int]:
        """A process in the network of a running task, or None if that is the machine's own (`networks`). Raises OSError
        if the task doesn't run."""
        ...

    def address(self, folder: TaskFolder) -> str:
        """The IPv4 address of a running task in a network that its host may reach; empty if that is the host's own, or
        nobody knows. Raises OSError if the task doesn't run."""
        ...

    def remove(self, folder: TaskFolder) -> None:
        """Delete what the task left outside its folder, if anything."""
        ...

    def sweep(self, known: Set[str]) -> None:
        """Delete what tasks without a folder have left behind."""
        ...


def isolation(runtimes: Dict[str, TaskRuntime]) -> Dict[str, str]:
    return {name: runtime.isolation for name, runtime in runtimes.items()}


def micros() -> int:
    return time.time_ns() // 1000
