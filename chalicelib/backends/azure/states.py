"""What Azure says of a machine: whether it runs, and if it failed, why."""

from __future__ import annotations

from chalicelib.backends.azure.errors import refused_late
from chalicelib.backends.azure.places import Body, properties
from chalicelib.backends.kit.errors import cleaned
from chalicelib.errors import BackendError, Gone, InsufficientCapacity

POWER, FAILED = "PowerState/", "ProvisioningState/failed"
STOPPED = ("stopping", "stopped", "deallocating", "deallocated")  # a stopped one is still billed


def is_running(body: Body, name: str) -> bool:
    """Does it run? False: not yet. Raises Gone if it never will."""
    state, power = str(properties(body).get("provisioningState", "")).lower(), _power(body)
    if state == "deleting":
        if is_spot(body):
            raise Gone(f"{name} is being deleted: Azure takes spot machines back.", refused=InsufficientCapacity)
        raise Gone(f"{name} is being deleted.")
    if power == "running":
        return True
    if state == "failed":
        text, refused = failure(body)
        size = (properties(body).get("hardwareProfile") or {}).get("vmSize", "machine")
        raise Gone(f"Azure couldn't create {name}, a {size}: {text}", refused=refused)
    if power in STOPPED:
        why = "Azure has taken it back" if is_spot(body) else "somebody has stopped it"
        raise Gone(f"{name} is {power}: {why}.", refused=InsufficientCapacity if is_spot(body) else None)
    return False


def failure(body: Body) -> tuple[str, type[BackendError] | None]:
    """Why its creation failed, and what a refusal at once would have been."""
    for status in _statuses(body):
        code = str(status.get("code", ""))
        if code.lower().startswith(FAILED.lower()):
            reason, message = code[len(FAILED) :].strip("/"), str(status.get("message") or "")
            return f"{reason or 'no code'}: {cleaned(message)}", refused_late(reason, message)
    return "it doesn't say why", None


def is_spot(body: Body) -> bool:
    return properties(body).get("priority") in ("Spot", "Low")


def _power(body: Body) -> str:
    codes = (str(status.get("code", "")) for status in _statuses(body))
    return next((code[len(POWER) :].lower() for code in codes if code.lower().startswith(POWER.lower())), "")


def _statuses(body: Body) -> list[Body]:
    view = properties(body).get("instanceView") or {}
    return list(view.get("statuses") or ())
