"""What engines and registries say of a container that doesn't start, as providers pass it on."""

from __future__ import annotations

import re

from chalicelib.backends.kit.errors import cleaned
from chalicelib.errors import BackendError, ContainerFailed, InsufficientCapacity

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


def start_failure(name: str, text: str, *, is_over: bool) -> tuple[str, type[BackendError]] | None:
    """Why the container `name` can't start, and whether another host could start it; None: the text doesn't say. A host
    that is broken, or that a registry refuses, may try again: it counts once `is_over`."""
    of = f"{name[0].lower()}{name[1:]}"
    if NO_IMAGE.search(text):
        return f"The image of {of} can't be pulled: {cleaned(text)}", ContainerFailed
    if is_over and RATE_LIMIT.search(text):
        return f"The image of {of} can't be pulled: {cleaned(text)}", InsufficientCapacity
    if NO_SHELL.search(text):
        why = "the image has no shell (/bin/sh), or is made for another processor"
        return f"{name} can't run its job: {why}: {cleaned(text)}", ContainerFailed
    if is_over and BROKEN_HOST.search(text):
        return f"{name} can't be started on its host: {cleaned(text)}", InsufficientCapacity
    return None
