"""The volume machine. A volume is `deleted` only when its provider says that nothing is left of it; an external one,
as soon as nothing uses it.
"""

from __future__ import annotations

from chalicelib.domain.instants import DAY, MINUTE, SECOND, Micros, every, spoken
from chalicelib.machines.table import StateMachine

TO_CREATE: Micros = 20 * MINUTE  # from the request until the provider shows it as available
POLL_EVERY: Micros = 5 * SECOND  # while it is being created
CHECK_ACTIVE_EVERY: Micros = DAY  # if nothing happens; the sweep notices a disk that is gone
TO_ATTACH: Micros = 5 * MINUTE  # from the first attempt; then the job that waits for the volume ends
MOVE_EVERY: Micros = 5 * SECOND  # while it is being attached or detached
CHECK_ATTACHED_EVERY: Micros = 5 * MINUTE  # the end of its use wakes it; this is for wake-ups that are lost
CHECK_WAITING_EVERY: Micros = MINUTE  # the same while its machine is still to come
DELETE_EVERY: Micros = 5 * SECOND  # doubled with every request, up to:
DELETE_SELDOM: Micros = 5 * MINUTE

VOLUME = StateMachine(
    noun="volume",
    initial=("submitted",),
    terminal=frozenset({"deleted"}),
    table={
        "submitted": {"accepted": "provisioning", "ready": "active", "failed": "failed", "delete": "deleting"},
        "provisioning": {"ready": "active", "failed": "failed", "delete": "deleting"},
        "active": {"lost": "failed", "delete": "deleting"},
        "failed": {"delete": "deleting"},
        "deleting": {"gone": "deleted"},
    },
    timeouts={
        "submitted": f"the timeout of the create call, then it is repeated; {spoken(TO_CREATE)} in all",
        "provisioning": f"the rest of that time; its provider is asked {every(POLL_EVERY)}",
        "active": "`auto_cleanup_duration` without a run; without one it lives until deleted. Attaching it takes "
        f"{spoken(TO_ATTACH)} at most, or the job ends; detaching it is repeated until its provider shows it detached",
        "failed": "lives until deleted; what its creation may have left is removed meanwhile",
        "deleting": f"the request is repeated after {spoken(DELETE_EVERY)}, then less and less often, down to "
        f"{every(DELETE_SELDOM)}, until the provider says the volume is gone; never abandoned",
    },
)
