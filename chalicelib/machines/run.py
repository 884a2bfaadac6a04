"""The run machine, and the fold that derives a live run's status from its jobs."""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.machines.table import Machine

_LIVE = {
    "observe_submitted": "submitted",
    "observe_provisioning": "provisioning",
    "observe_running": "running",
    "resubmit_later": "pending",
    "end": "terminating",
}

RUN = Machine(
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
        "pending": "resume_at: the retry delay or the next scheduled time",
        "submitted": "looked at again every minute, through its jobs",
        "provisioning": "its jobs' deadlines",
        "running": "its jobs' deadlines",
        "terminating": "its jobs' deadlines",
    },
)


def observe(job_statuses: Iterable[str]) -> str:
    """The event that live jobs amount to: the most advanced of them decides."""
    seen = set(job_statuses)
    if "running" in seen or "terminating" in seen:
        return "observe_running"
    if seen & {"provisioning", "pulling"}:
        return "observe_provisioning"
    return "observe_submitted"
