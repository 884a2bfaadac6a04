"""What an instance's status means: a machine, or why there is none (any more)."""

from __future__ import annotations

from chalicelib.backends.lambda_cloud.client import Body
from chalicelib.backends.spi import Machine
from chalicelib.errors import Gone, InsufficientCapacity

ENDED, ENDING, PREEMPTED = "terminated", "terminating", "preempted"


def described(body: Body) -> Machine:
    """Raises Gone for an instance that is no machine any more. One that Lambda calls `unhealthy` may still work: its
    agent shows whether it does."""
    name, status, address = f"The instance {body['id']}", str(body["status"]), str(body.get("ip") or "")
    if status == PREEMPTED:
        raise Gone(f"{name} was taken back by Lambda.", refused=InsufficientCapacity)
    if status in (ENDING, ENDED):
        if not address:
            raise Gone(f"{name} has ended before it ran.", refused=InsufficientCapacity)
        raise Gone(f"{name} is {status}: somebody has terminated it.")
    running = status != "booting" and bool(address)
    return Machine("running" if running else "pending", address, str(body.get("private_ip") or address))


def why_it_stays(body: Body) -> str:
    """Why it can't be terminated now; empty if it can."""
    action = (body.get("actions") or {}).get("terminate") or {}
    if action.get("available", True):
        return ""
    return str(action.get("reason_description") or action.get("reason_code") or "Lambda doesn't say why")
