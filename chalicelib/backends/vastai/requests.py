"""The body of a request for an instance."""

from __future__ import annotations

import re
from typing import Any

from chalicelib.backends.spi import Container, CreateRequest, RegistryLogin
from chalicelib.backends.vastai.catalog import GIB, LEAST_DISK
from chalicelib.domain import container_script
from chalicelib.errors import Bug, Unfit

KEYS = "CONTAINER_API_KEY VAST_API_KEY"  # of Vast.ai's API, with which the instance could be changed from within
MOST_ENVIRONMENT = 32_768  # characters
START = "DSTACK_START"  # the variable with the script, on one line
RUN = f'eval "$(printf %b "${START}")"'
DOCKER_HUB = "docker.io"
_UNQUOTED = re.compile(r"[A-Za-z0-9_.:/@%+=,-]+")  # all that may be in a login, which is written like a command line


def container_of(request: CreateRequest) -> Container:
    if request.container is None:
        raise Bug(f"{request.name} is no container, and Vast.ai sells nothing else here")
    return request.container


def instance(request: CreateRequest) -> dict[str, Any]:
    """No port is opened and no SSH is set up in it: the agent calls out. `args` runs the image as it is, with `onstart`
    as its entry point, where the other kinds of Vast.ai start its own. All arguments together have 4,096 characters at
    most, and it isn't known whether they are counted as quoted, so the script is in a variable. A bid without a price
    would be an instance on demand, at the full price. Without room there is to be an error, and no instance that waits.
    """
    container, spot = container_of(request), request.offer.instance.resources.spot
    entry, option, script = container.command
    env = {**container.env, START: _one_line(script), container_script.HIDDEN: f"{KEYS} {START}"}
    if sum(len(name) + len(value) for name, value in env.items()) > MOST_ENVIRONMENT:
        raise Unfit(f"The variables of {request.name} have more than {MOST_ENVIRONMENT} characters, Vast.ai's limit.")
    body: dict[str, Any] = {
        "client_id": "me",
        "image": container.image,
        "label": request.name,
        "disk": max(LEAST_DISK, -(-request.disk_mib // GIB)),
        "runtype": "args",
        "onstart": entry,
        "args": [option, RUN],
        "env": env,
        "target_state": "running",
        "cancel_unavail": True,
    }
    if spot:
        bid = request.offer.backend_data.get("bid")
        if not bid:
            raise Bug(f"{request.name} is to be a spot instance, and its offer has no bid")
        body["price"] = bid
    if container.login is not None:
        body["image_login"] = _login(container.image, container.login)
    return body


def _one_line(script: str) -> str:
    """As `printf %b` undoes it."""
    return script.replace("\\", "\\\\").replace("\n", "\\n")


def _login(image: str, login: RegistryLogin) -> str:
    first, slash, _ = image.partition("/")
    is_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
    parts = login.username, login.password, first if is_host else DOCKER_HUB
    if not all(map(_UNQUOTED.fullmatch, parts)) or any(each.startswith("-") for each in parts):
        raise Unfit(
            "Vast.ai takes a registry's login as a command line, and this one has characters that would break it.",
            hint="Use a user name and a token of letters, digits and `_ . : / @ % + = , -`.",
        )
    user, password, registry = parts
    return f"-u {user} -p {password} {registry}"
