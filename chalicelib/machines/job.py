"""The job machine. An end always goes through `terminating`: the agent removes the task, then the claim is given back.

`requeue` is a placement undone before the job ever ran (the cloud refused the machine): the job waits again.
"""

from __future__ import annotations

from chalicelib.machines.table import Machine

JOB = Machine(
    noun="job",
    initial=("submitted",),
    terminal=frozenset({"done", "failed", "terminated", "aborted"}),
    table={
        "submitted": {"provision": "provisioning", "end": "terminating"},
        "provisioning": {"pull": "pulling", "run": "running", "requeue": "submitted", "end": "terminating"},
        "pulling": {"run": "running", "end": "terminating"},
        "running": {"end": "terminating"},
        "terminating": {"done": "done", "failed": "failed", "terminated": "terminated", "aborted": "aborted"},
    },
    timeouts={
        "submitted": "looked at again every minute; ends when no place can ever fit, or by the user",
        "provisioning": "the backend's provisioning timeout",
        "pulling": "20 minutes",
        "running": "max_duration, or two missed promises of the host to report",
        "terminating": "10 s for a graceful stop, then abort; at the latest when the instance is gone or lost",
    },
)
