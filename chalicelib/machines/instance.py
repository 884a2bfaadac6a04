"""The instance machine. `gone` is said by the cloud (or, for a host that isn't ours to end, by its removal from the
fleet).
"""

from __future__ import annotations

from chalicelib.machines.table import Machine

INSTANCE = Machine(
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
        "pending": "act_until, then the name is looked for and the effect repeated; 10 minutes in all",
        "provisioning": "the backend's provisioning timeout",
        "idle": "idle_duration, where the fleet has one",
        "busy": "its jobs' deadlines; 20 minutes unreachable",
        "terminating": "asked again every 30 s until the cloud says it is gone; never given up",
    },
)
