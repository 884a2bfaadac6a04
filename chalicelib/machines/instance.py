"""The instance machine. `gone` comes from the cloud (or, for a host that isn't ours to terminate, from its removal
from the fleet).
"""

from __future__ import annotations

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import DAY, MINUTE, SECOND, Micros, every, spoken
from chalicelib.machines.table import StateMachine

RUN_IDLE: Micros = 5 * MINUTE  # default `idle_duration` of an instance created for a run
FLEET_IDLE: Micros = 3 * DAY  # and of one created for its fleet
UNREACHABLE_LIMIT: Micros = 20 * MINUTE
TERMINATE_EVERY: Micros = 5 * SECOND  # doubled with every attempt, up to:
TERMINATE_SELDOM: Micros = 5 * MINUTE
_PROVISIONING = BackendFacts.model_fields["provisioning_timeout"].default

INSTANCE = StateMachine(
    noun="instance",
    initial=("pending", "idle"),
    terminal=frozenset({"terminated"}),
    table={
        "pending": {"accepted": "provisioning", "refused": "terminated", "joined": "idle", "end": "terminating"},
        "provisioning": {"joined": "idle", "end": "terminating"},
        "idle": {"claimed": "busy", "end": "terminating"},
        "busy": {"freed": "idle", "end": "terminating"},
        "terminating": {"gone": "terminated"},
    },
    timeouts={
        "pending": "the timeout of the create call, then the name is looked up and the call repeated; the backend's "
        f"provisioning timeout in all ({spoken(_PROVISIONING)} unless its facts say otherwise)",
        "provisioning": "the rest of that timeout",
        "idle": "`idle_duration`, while the fleet has more than its minimum (unless set, "
        f"{spoken(RUN_IDLE)} for a machine bought for a run, {spoken(FLEET_IDLE)} for one bought for its fleet); "
        f"{spoken(UNREACHABLE_LIMIT)} unreachable",
        "busy": f"its jobs' deadlines; {spoken(UNREACHABLE_LIMIT)} unreachable",
        "terminating": f"the request is repeated after {spoken(TERMINATE_EVERY)}, then less and less often, down to "
        f"{every(TERMINATE_SELDOM)}, until the cloud says the machine is gone; never abandoned",
    },
)
