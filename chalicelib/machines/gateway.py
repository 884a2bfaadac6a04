"""The gateway machine. A failed gateway keeps trying, so it runs once the obstacle is gone. It becomes `deleted` only
when no machine carries a replica of it any more.
"""

from __future__ import annotations

from chalicelib.domain.instants import HOUR, MINUTE, Micros, every, spoken
from chalicelib.machines.table import StateMachine

TO_RUN: Micros = 15 * MINUTE  # from the request until all its replicas take requests
CHECK_GATEWAY_EVERY: Micros = HOUR  # changes of its machines wake it; this is for wake-ups that are lost
CHECK_HOSTS_EVERY: Micros = MINUTE  # while a replica has no machine
TO_LEAVE: Micros = 10 * MINUTE  # time for a machine to remove its replica; after that nothing waits for it

GATEWAY = StateMachine(
    noun="gateway",
    initial=("submitted",),
    terminal=frozenset({"deleted"}),
    table={
        "submitted": {"placed": "provisioning", "failed": "failed", "delete": "deleting"},
        "provisioning": {"ready": "running", "failed": "failed", "delete": "deleting"},
        "running": {"delete": "deleting"},
        "failed": {"ready": "running", "delete": "deleting"},
        "deleting": {"gone": "deleted"},
    },
    timeouts={
        "submitted": f"{spoken(TO_RUN)} in all; hosts for its replicas are looked for {every(CHECK_HOSTS_EVERY)}",
        "provisioning": "the rest of that time",
        "running": f"lives until deleted; a replica whose machine is gone gets another; checked "
        f"{every(CHECK_GATEWAY_EVERY)}",
        "failed": "lives until deleted; its machines go on trying",
        "deleting": f"{spoken(TO_LEAVE)} for a machine that doesn't say that its replica is removed",
    },
)
