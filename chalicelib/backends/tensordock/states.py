"""What an instance's status means. `running` only says that it was created: it is built until it has an address."""

from __future__ import annotations

from chalicelib.backends.spi import Machine
from chalicelib.backends.tensordock.client import Body
from chalicelib.errors import Gone, InsufficientCapacity

ENDING, ENDED = "deleting", ("deleted", "terminated")
TAKEN, FAILED = "stoppeddisassociated", "error"
UP = ("running", "online")


def described(body: Body, address: str) -> Machine:
    """Raises Gone for an instance that is no machine any more. All of those but the deleted are billed."""
    name, status = f"The instance {body['id']}", body["status"]
    if status == TAKEN:
        raise Gone(f"{name} has lost its GPUs: its host has taken them back.", refused=InsufficientCapacity)
    if status == FAILED:
        raise Gone(f"{name} has failed on its host.", refused=InsufficientCapacity)
    if status in ("stopping", "stopped"):
        raise Gone(f"{name} was stopped: the account has no balance left, or somebody has stopped it.")
    if status == ENDING or status in ENDED:
        raise Gone(f"{name} is {status}: somebody has deleted it.")
    return Machine("running" if status in UP and address else "pending", address, address)
