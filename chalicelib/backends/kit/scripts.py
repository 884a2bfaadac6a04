"""The script that starts the agent, in the form that a provider accepts.

A provider that passes it to cloud-init, or runs it as its own start-up script, accepts the text itself. Others accept a
cloud-init configuration as an object, or nothing at all; there the script is started over SSH. A container has no
script: its request says what it runs (`spi.Container`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.boot_script import for_several, read_user_data
from chalicelib.domain.container_script import read_settings
from chalicelib.errors import Unfit

PLACE = "/var/lib/dstack-start"  # the script's file where the provider doesn't run the script itself


def user_data(request: CreateRequest, most: int, provider: str, number: str = "") -> str:
    """The script itself. `most`: the provider's limit in bytes; `number`: the command that prints which machine of a
    bundle it runs on."""
    script = for_several(request.bundle, number) if request.bundle else request.user_data
    if len(script.encode()) > most:
        raise Unfit(f"The boot script of {request.name} is longer than the {most} bytes that {provider} takes.")
    return script


def check_gateway(request: CreateRequest, *, public_ips: bool) -> None:
    """Raises Unfit for the machine of a gateway that nobody could reach."""
    if request.open_ports and not public_ips:
        raise Unfit(
            f"{request.name} is a gateway's, which needs a public address, and the backend has `public_ips: false`.",
            hint="Remove that, or run the gateway on your own hosts: `fleet` instead of `backend` and `region`.",
        )


def secrets_of(request: CreateRequest) -> tuple[str, ...]:
    """What no text about the request may show: the script, the token with which a machine joins, and the login of the
    image's registry, also in the form in which registries get it (`user:password`, often in base64)."""
    if request.container is not None:
        _, _, token = read_settings(request.container.env)
        login = request.container.login
        if login is None:
            return (token,)
        hidden = (f"{login.username}:{login.password}", login.password)
        return token, *hidden, *([login.username] if login.secret_username else [])
    try:
        tokens = [read_user_data(script)[2] for script in request.bundle or (request.user_data,)]
    except ValueError:  # a script of somebody else
        return request.user_data, *request.bundle
    return request.user_data, *tokens


def cloud_config(script: str, place: str = PLACE) -> Mapping[str, Any]:
    """The cloud-init configuration, for a provider that accepts an object."""
    file = {"path": place, "content": script, "owner": "root:root", "permissions": "0700"}
    return {"write_files": [file], "runcmd": [place]}


# For a session that has the script as its input, so that no list of processes shows it, and that may end at once.
SSH_COMMAND = (
    'as=; [ "$(id -u)" = 0 ] || as="sudo -n"; '
    f"$as sh -c 'umask 077; cat > {PLACE} || exit 1; nohup setsid sh {PLACE} > {PLACE}.log 2>&1 < /dev/null &'"
)
