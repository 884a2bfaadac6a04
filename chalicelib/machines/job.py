"""The job machine. An end always goes through `terminating`: the agent removes the task, then the claim is released.

`requeue` undoes a placement before the job ever ran (the cloud refused the machine): the job waits again.
"""

from __future__ import annotations

from chalicelib.domain.instants import MINUTE, SECOND, Micros, every, spoken
from chalicelib.machines.table import StateMachine
from chalicelib.machines.volume import TO_ATTACH

CHECK_HEAD_EVERY: Micros = MINUTE  # pause between checks of the first waiting job, even if nothing happens
CHECK_QUEUE_EVERY: Micros = 10 * MINUTE  # and of the others; a check of one is a check of all
TO_START: Micros = 10 * MINUTE  # from a place on a running machine to the task's first report
PULL_TIMEOUT: Micros = 20 * MINUTE
OVERTIME: Micros = MINUTE  # the agent ends a job at max_duration; this much later the control plane does
SHORTEST_PROMISE: Micros = 60 * SECOND  # a host counts as lost no sooner than this after its missed report
TO_GET_ADDRESSES: Micros = 30 * MINUTE  # additional time for a service's replica to get the addresses of others
TO_UNMOUNT: Micros = 15 * MINUTE  # from a job's last second until a machine of ours ends with a volume that is in use
GRACE: Micros = 10 * SECOND  # between the polite signal and the kill, if the user sets no `stop_duration`

JOB = StateMachine(
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
        "submitted": f"checked again: the first in line {every(CHECK_HEAD_EVERY)}, the others "
        f"{every(CHECK_QUEUE_EVERY)}; ends when nothing can ever fit it, or when a user stops it",
        "provisioning": f"{spoken(TO_START)} on a running machine; on a new one, the backend's provisioning timeout "
        f"for the machine to come up, then {spoken(TO_START)}; with volumes {spoken(TO_ATTACH)} more, and "
        f"{spoken(TO_GET_ADDRESSES)} if it needs the addresses of others",
        "pulling": spoken(PULL_TIMEOUT),
        "running": f"`max_duration` plus {spoken(OVERTIME)}; or its host misses two reports in a row, the second after "
        f"at least {spoken(SHORTEST_PROMISE)}",
        "terminating": f"`stop_duration` ({spoken(GRACE)} unless set), then abort; at the latest when the instance is "
        "gone or, unless the job has volumes, lost. A bought machine that has nothing else to do, and can't unmount a "
        f"volume of it within {spoken(TO_UNMOUNT)}, is ended",
    },
)
