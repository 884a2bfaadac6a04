"""What a pod's status means: a machine, or why there is none (any more).

Runpod says that a pod runs, or is about to, while its image can't be pulled or its host is broken, and bills it. Only
the pod's log tells, so it is read for pods that take long. Of a pod that has stopped, only the older API says who has
stopped it: a user or Runpod; not why.

Where a pod is placed is Runpod's choice, whatever was requested, and what it costs is known for sure once it exists.
One that is elsewhere, or costs much more, isn't what was planned, so it is no machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from chalicelib.backends.kit.errors import cleaned
from chalicelib.backends.kit.start_failures import start_failure
from chalicelib.backends.runpod.catalog import COMMUNITY
from chalicelib.backends.runpod.client import Body, Line
from chalicelib.backends.runpod.pods import bought
from chalicelib.backends.spi import Machine
from chalicelib.domain.instants import MINUTE, SECOND, Micros, from_iso
from chalicelib.errors import ContainerFailed, Gone, InsufficientCapacity, NotYet


@dataclass(frozen=True)
class LookUps:
    """What else can be known about a pod. Each is called only if it is needed."""

    log: Callable[[], Sequence[Line] | None]  # the last lines; None: they are read another time
    change: Callable[[], str]  # what has last become of it, and by whom; empty: unknown


READ_AFTER = 45 * SECOND  # since its creation: until then a pod just starts
BROKEN_AFTER = 3 * MINUTE  # Runpod tries again on a host that can't start it
DEARER, CENTS = 1.25, 0.05  # the price of a pod may have its disk in it, and offers are some seconds old
YOUNG = 30  # seconds: a container that has run for less may have been started anew
EXITED, BY_USER = re.compile(r"exited by", re.IGNORECASE), re.compile(r"exited by user", re.IGNORECASE)
BY_RUNPOD = re.compile(r"exited by runpod", re.IGNORECASE)
STOPPED = re.compile(r"dstack: (.+)")  # what the start script says before it ends (`domain/container_script.py`)
COMMAND_AS_TEXT = re.compile(r'\{\\*"entrypoint\\*":')  # the start of what `pods.py` writes, as a file that isn't there


def described(pod: Body, now: Micros, look_up: LookUps) -> Machine:
    """Raises Gone for a pod that has ended, can't start or is elsewhere. All of them are billed until they are
    terminated."""
    name, status = f"The pod {pod['id']}", pod["status"]
    if status == "TERMINATED":
        raise Gone(f"{name} is terminated.")
    if status == "EXITED":
        _stopped(pod, name, look_up)
    if difference := other_than_bought(pod):
        raise Gone(difference, refused=InsufficientCapacity)
    age = now - from_iso(str(pod["createdAt"]))
    if status == "RUNNING" and (runtime := pod.get("runtime")) is not None:
        if age >= READ_AFTER and runtime.get("uptime", YOUNG) < YOUNG:
            _check_start(name, look_up.log() or ())
        address = str((pod.get("cluster") or {}).get("ip") or "")  # between the pods of a cluster
        return Machine("running", hostname=str(pod["id"]), internal_ip=address)
    if status == "ERROR" or age >= READ_AFTER:
        _check_log(name, look_up.log() or (), is_over=status == "ERROR" or age >= BROKEN_AFTER)
    if status == "ERROR":
        raise Gone(f"{name} couldn't be started on its host.", refused=InsufficientCapacity)
    return Machine("pending", hostname=str(pod["id"]))


def other_than_bought(pod: Body) -> str:
    """In what it differs from what was planned; empty: in nothing that is known yet. What it costs counts until it
    runs: its job isn't ended for a price that Runpod raises later."""
    region, _, price = bought(pod)
    place, cost = pod.get("dataCenterId"), float(pod.get("cost") or 0)
    if place and region not in ("", COMMUNITY, place):
        return f"Runpod placed the pod {pod['id']} in {place}, and {region} was requested."
    if price and cost > price * DEARER + CENTS and pod["status"] in ("PROVISIONING", "STARTING"):
        return f"Runpod bills ${cost:.2f} an hour for the pod {pod['id']}, and it was offered for ${price:.2f}."
    return ""


def _stopped(pod: Body, name: str, look_up: LookUps) -> NoReturn:
    """Raises Gone, or NotYet while its log is still to be read."""
    if not pod.get("startedAt"):
        lines = look_up.log()
        if lines is None:
            raise NotYet(f"{name} has stopped, and its log is still to be read.")
        _check_log(name, lines, is_over=True)
    change = cleaned(look_up.change())
    if BY_USER.search(change):
        raise Gone(f"Somebody has stopped the pod {pod['id']}: {change}", refused=ContainerFailed)
    note = f" ({change})" if EXITED.match(change) else ""  # otherwise it is older
    if bought(pod).spot:
        why = "a spot pod has to make way for higher bids and for pods on demand"
        raise Gone(f"Runpod has taken the pod {pod['id']} back{note}: {why}.", refused=InsufficientCapacity)
    if not pod.get("startedAt"):
        why = "its image may be too large for Runpod or missing, or its host is broken"
        raise Gone(f"{name} has stopped before its container was started{note}: {why}.", refused=ContainerFailed)
    if BY_RUNPOD.search(change):  # a container that ends is started again
        raise Gone(f"Runpod has stopped the pod {pod['id']}{note}: for maintenance, or for want of credit.")
    why = "its container has ended, or the account has no credit"
    raise Gone(f"{name} has stopped{note}: {why}.", refused=ContainerFailed)


def _check_start(name: str, lines: Sequence[Line]) -> None:
    """Raises Gone if the agent couldn't be started: Runpod starts a container that ends again and again."""
    for text in (line.text for line in reversed(lines)):
        if found := STOPPED.match(text):
            raise Gone(f"{name} can't run its job: {cleaned(found[1])}", refused=ContainerFailed)
        _check_command(name, text)


def _check_command(name: str, text: str) -> None:
    if COMMAND_AS_TEXT.search(text):
        raise Gone(
            f"{name} can't run its job: Runpod takes the JSON of its start command for the command itself, which this "
            f"release doesn't expect: {cleaned(text)}",
            refused=ContainerFailed,
        )


def _check_log(name: str, lines: Sequence[Line], *, is_over: bool) -> None:
    """Raises Gone if it says why the pod can't start. What the container has written proves nothing."""
    for text in (line.text for line in reversed(lines) if not line.is_jobs):
        _check_command(name, text)
        if found := start_failure(name, text, is_over=is_over):
            raise Gone(found[0], refused=found[1])
