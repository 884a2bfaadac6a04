"""What a pod's status means: a machine, or why there is none (any more).

Runpod says that a pod runs, or is about to, while its image can't be pulled or its host is broken, and bills it. Only
the pod's log tells, so it is read for pods that take long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from chalicelib.backends.kit.errors import cleaned
from chalicelib.backends.runpod.client import Body
from chalicelib.backends.spi import Machine
from chalicelib.domain.instants import MINUTE, SECOND, Micros, from_iso
from chalicelib.errors import ContainerFailed, Gone, InsufficientCapacity

Log = Callable[[], Sequence[str]]  # the last lines; called only if they are needed

READ_AFTER = 45 * SECOND  # since its creation: until then a pod just starts
BROKEN_AFTER = 3 * MINUTE  # Runpod tries again on a host that can't start it
YOUNG = 30  # seconds: a container that has run for less may have been started anew
STOPPED = re.compile(r"dstack: (.+)")  # what the start script says before it ends (`domain/container_script.py`)
# What registries say, which waiting doesn't mend.
NO_IMAGE = re.compile(
    r"manifest (for .* )?(unknown|not found)|pull access denied|repository does not exist|no matching manifest"
    r"|unauthori[sz]ed|authentication required|denied: (requested access|denied)|invalid reference format"
    r"|no basic auth|requested access to the resource is denied|pulling image.*: not found"
    r"|\S/\S+[:@]\S+: not found|no such host"
    r"|x509: certificate signed by unknown authority",
    re.IGNORECASE,
)
RATE_LIMIT = re.compile(r"toomanyrequests", re.IGNORECASE)  # of a registry, for the host's address
# The start script is `/bin/sh`'s.
NO_SHELL = re.compile(
    r"exec:? \"?/bin/sh\"?: .*(executable file not found|no such file or directory|exec format error)", re.IGNORECASE
)
BROKEN_HOST = re.compile(
    r"error creating container|layer does not exist|no space left on device|failed to create (shim|task)"
    r"|nvidia-container-cli|OCI runtime create failed",
    re.IGNORECASE,
)


def described(pod: Body, now: Micros, log: Log) -> Machine:
    """Raises Gone for a pod that has ended, or can't start. All of them are billed until they are terminated."""
    name, status = f"The pod {pod['id']}", pod["status"]
    if status == "TERMINATED":
        raise Gone(f"{name} is terminated.")
    if status == "EXITED":
        raise Gone(
            f"{name} has stopped: its container has ended, somebody has stopped it, or the account has no credit.",
            refused=ContainerFailed,
        )
    age = now - from_iso(str(pod["createdAt"]))
    if status == "RUNNING" and (runtime := pod.get("runtime")) is not None:
        if age >= READ_AFTER and runtime.get("uptime", YOUNG) < YOUNG:
            _check_start(name, log())
        return Machine("running", hostname=str(pod["id"]))
    if status == "ERROR" or age >= READ_AFTER:
        _check_log(name, log(), is_over=status == "ERROR" or age >= BROKEN_AFTER)
    if status == "ERROR":
        raise Gone(f"{name} couldn't be started on its host.", refused=InsufficientCapacity)
    return Machine("pending", hostname=str(pod["id"]))


def _check_start(name: str, lines: Sequence[str]) -> None:
    """Raises Gone if the agent couldn't be started: Runpod starts a container that ends again and again."""
    for line in reversed(lines):
        if found := STOPPED.match(line):
            raise Gone(f"{name} can't run its job: {cleaned(found[1])}", refused=ContainerFailed)


def _check_log(name: str, lines: Sequence[str], *, is_over: bool) -> None:
    """Raises Gone if it says why the pod can't start."""
    for line in reversed(lines):
        if NO_IMAGE.search(line):
            raise Gone(
                f"The image of {name[0].lower()}{name[1:]} can't be pulled: {cleaned(line)}", refused=ContainerFailed
            )
        if is_over and RATE_LIMIT.search(line):
            raise Gone(
                f"The image of {name[0].lower()}{name[1:]} can't be pulled: {cleaned(line)}",
                refused=InsufficientCapacity,
            )
        if NO_SHELL.search(line):
            raise Gone(
                f"{name} can't run its job: the image has no shell (/bin/sh), or is made for another processor: "
                f"{cleaned(line)}",
                refused=ContainerFailed,
            )
        if is_over and BROKEN_HOST.search(line):
            raise Gone(f"{name} can't be started on its host: {cleaned(line)}", refused=InsufficientCapacity)
