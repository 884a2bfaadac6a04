"""What an instance's status means: a machine, or why there is none (any more).

Vast.ai names four states. `actual_status` is the container's, null until the host has heard of it; `cur_state` and
`next_state` are the contract's, and `intended_status` is the renter's wish. Somebody who is outbid has an instance that
is stopped, or that waits to go on, and pays for its disk: neither is of use to a job.
"""

from __future__ import annotations

from chalicelib.backends.kit.errors import cleaned
from chalicelib.backends.kit.start_failures import start_failure
from chalicelib.backends.spi import Machine
from chalicelib.backends.vastai.client import Body
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.errors import ContainerFailed, Gone, InsufficientCapacity

UNTOUCHED_FOR = 10 * MINUTE  # its host doesn't begin
BROKEN_AFTER = 3 * MINUTE  # a host tries again
WARNING = 5 * MINUTE  # before its host's offer ends, when Vast.ai stops what runs there


def described(body: Body, now: Micros) -> Machine:
    """Raises Gone for an instance that has ended, or can't start. All of them are billed until they are destroyed."""
    name, actual, message = f"The instance {body['id']}", body.get("actual_status"), str(body.get("status_msg") or "")
    if _is_stopped(body):
        raise _taken(name, body, now)
    if actual == "exited":
        said = f": {cleaned(message)}" if message else ""
        raise Gone(f"{name} has exited: its container has ended{said}.", refused=ContainerFailed)
    if actual in ("running", "frozen"):
        ends = round(float(body.get("end_date") or 0) * SECOND)
        if ends and now >= ends - WARNING:
            return Machine("running", hostname=str(body["id"]), interrupted=True, reclaim_at=ends)
        return Machine("running", hostname=str(body["id"]))
    age = now - round(float(body.get("start_date") or now / SECOND) * SECOND)
    found = start_failure(name, message, is_over=actual == "created" or age >= BROKEN_AFTER)
    if found is not None:
        raise Gone(found[0], refused=found[1])
    if actual in (None, "created") and age >= UNTOUCHED_FOR:
        raise Gone(f"{name} isn't started by its host.", refused=InsufficientCapacity)
    return Machine("pending", hostname=str(body["id"]))


def _is_stopped(body: Body) -> bool:
    """A new instance is stopped, too, until its next state comes."""
    if body.get("actual_status") == "stopped" or body.get("intended_status") == "stopped":
        return True
    return body.get("cur_state") == "stopped" and body.get("next_state") == "stopped"


def _taken(name: str, body: Body, now: Micros) -> Gone:
    ends = body.get("end_date")
    if ends and float(ends) * SECOND <= now:
        return Gone(f"{name} was stopped: its host rents out the machine no longer.", refused=InsufficientCapacity)
    if body.get("is_bid"):
        return Gone(
            f"{name} has lost its bid: somebody bids more for the machine, or rents it on demand.",
            refused=InsufficientCapacity,
        )
    return Gone(f"{name} was stopped: the account has no credit left, or somebody has stopped it.")
