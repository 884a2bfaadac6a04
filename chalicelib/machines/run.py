"""The run machine, and the function that derives a live run's status from its jobs."""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.domain.instants import HOUR, MINUTE, SECOND, Micros, every, spoken
from chalicelib.machines.table import StateMachine

CHECK_RUN_EVERY: Micros = MINUTE  # pause between passes over a live run, even if nothing happens
SETTLED: Micros = HOUR  # the same once all its jobs run; whatever follows has a deadline or makes the run due
BACKOFF: tuple[Micros, ...] = (15 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE)

_TIMES = "its jobs' deadlines, and its replicas' retry delays"
_LIVE = {
    "observe_submitted": "submitted",
    "observe_provisioning": "provisioning",
    "observe_running": "running",
    "resubmit_later": "pending",
    "end": "terminating",
}

RUN = StateMachine(
    noun="run",
    initial=("submitted", "pending"),
    terminal=frozenset({"done", "failed", "terminated"}),
    table={
        "pending": {"resubmit": "submitted", "end": "terminating"},
        "submitted": _LIVE,
        "provisioning": _LIVE,
        "running": _LIVE,
        "terminating": {"done": "done", "failed": "failed", "terminated": "terminated", "reschedule": "pending"},
    },
    timeouts={
        "pending": f"the retry delay ({spoken(BACKOFF[0])}, longer with every attempt, up to {spoken(BACKOFF[-1])}) "
        "of the first of its replicas, the next scheduled time, or a service's next request",
        "submitted": f"{_TIMES}; like every live run that isn't settled, checked {every(CHECK_RUN_EVERY)}",
        "provisioning": _TIMES,
        "running": _TIMES,
        "terminating": "its jobs' deadlines",
    },
)


def observe(job_statuses: Iterable[str]) -> str:
    """The event that follows from the jobs of replicas that aren't over: the most advanced one decides. A node that is
    done has run, though others may not have begun yet."""
    seen = set(job_statuses)
    if seen & {"running", "terminating", "done"}:
        return "observe_running"
    if seen & {"provisioning", "pulling"}:
        return "observe_provisioning"
    return "observe_submitted"
