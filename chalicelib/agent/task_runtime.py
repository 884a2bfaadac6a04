"""What a task's supervisor asks of the place that runs it. Two answers exist: `process` and `docker`.

A runtime is used from two sides. The supervisor calls `begin` and drives the Work it gets; the agent asks `usage` and
`remove`. Both sides only share the task's folder, so either may be killed and started again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Protocol, Set

from .tasks import TaskFolder

Spec = Dict[str, Any]


class TaskError(Exception):
    """A task that can't run, in the words its user reads. `reason` is one of the protocol's."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class Interrupted(Exception):
    """Asked to stop before the task ran."""


@dataclass
class Began:
    """What the supervisor hands to `begin`."""

    folder: TaskFolder
    spec: Spec
    state: Dict[str, Any]  # as an earlier supervisor of this task left it; empty the first time
    spooled: int  # bytes of output already on disk
    report: Callable[..., None]  # report(state, **fields): writes the state and tells the agent
    pause: Callable[[float], None]  # wait so long, or raise Interrupted when somebody wants the task to end
    gpus: List[str] = field(default_factory=list)  # ids of the GPUs given to this task


class Work(Protocol):
    """A running task."""

    def fileno(self) -> int:
        """What to select on for output; -1 when there is none just now."""
        ...

    def read(self) -> bytes:
        """Output that is ready, or b"" when there is none (never waits)."""
        ...

    def ended(self) -> Optional[int]:
        """The exit status once it is over (128 + signal for a death by signal), else None."""
        ...

    def wake_at(self) -> float:
        """When (monotonic) `ended` wants to be asked although nothing can be read; infinity for never."""
        ...

    def signal_politely(self) -> None:
        """Ask every process to end, by the signal that it listens to."""
        ...

    def signal_firmly(self) -> None:
        """SIGTERM to those who are still there."""
        ...

    def kill(self) -> None:
        """End all of it now."""
        ...

    def out_of_memory(self) -> bool:
        """After the end: was it killed for using more memory than it was given?"""
        ...

    def finish(self) -> bytes:
        """After the end: leave no process behind, return the last of the output."""
        ...


@dataclass(frozen=True)
class Usage:
    cpu_usage_micro: int
    memory_usage_bytes: int
    memory_working_set_bytes: int


class TaskRuntime(Protocol):
    name: str

    def problem(self) -> str:
        """Why it can't be used here; empty when it can."""
        ...

    def begin(self, began: Began) -> Work: ...

    def usage(self, folder: TaskFolder) -> Optional[Usage]: ...

    def remove(self, folder: TaskFolder) -> None:
        """Delete what the task left outside its folder; harmless when there is nothing."""
        ...

    def sweep(self, known: Set[str]) -> None:
        """Delete what tasks left behind whose folders are gone."""
        ...


def micros() -> int:
    return time.time_ns() // 1000
