"""The ports of a job that are forwarded to this machine while attached."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from chalicelib.errors import Refused, WrongFlag

if TYPE_CHECKING:
    from chalicelib import contract

_MAP = re.compile(r"(?:([0-9]{1,5}|\*):)?([0-9]{1,5})")
HIGHEST = 65535
_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

IsFree = Callable[[str, int], bool]


@dataclass(frozen=True)
class Forward:
    address: str  # on this machine
    local: int
    remote: int

    @property
    def option(self) -> str:
        """The value of `ssh -L`."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{address}:{self.local}:localhost:{self.remote}"


@dataclass(frozen=True)
class WantedPort:
    """A port of the job, and the required local port; None: the same number, or the next free one."""

    remote: int
    local: int | None = None


def of_job(job_spec: contract.JobSpec) -> list[WantedPort]:
    """The ports in a job's spec."""
    found = []
    for app in job_spec.get("app_specs") or ():
        remote, local = _port(app["port"]), app.get("map_to_port")
        found.append(WantedPort(remote, None if local is None else _port(local)))
    return found


def of_configuration(configuration: contract.Configuration) -> list[WantedPort]:
    """The ports in a configuration, before there is a job."""
    written = configuration.get("ports") or ()
    return [WantedPort(_port(one["container_port"]), one.get("local_port")) for one in written]


def overridden(wanted: Sequence[WantedPort], maps: Iterable[str]) -> list[WantedPort]:
    """The ports with the local ports of `-p`. Raises Refused for ports that the run doesn't have."""
    found = {one.remote: one for one in wanted}
    for text in maps:
        match = _MAP.fullmatch(text.strip())
        local, remote = (match[1], int(match[2])) if match else (None, 0)
        if not match or not 1 <= remote <= HIGHEST or (local not in (None, "*") and not 1 <= int(local) <= HIGHEST):
            raise WrongFlag(f"-p {text}: that isn't a port.", hint="For example 8080, 80:8080 or '*:8080'.")
        if remote not in found:
            listed = ", ".join(str(one.remote) for one in wanted)
            hint = f"Its ports are {listed}." if listed else "It has none: list them as `ports` in its configuration."
            raise WrongFlag(f"-p {text}: the run doesn't have the port {remote}.", hint=hint)
        found[remote] = WantedPort(remote, None if local == "*" else int(local or remote))
    return list(found.values())


def chosen(wanted: Sequence[WantedPort], address: str, is_free: IsFree) -> list[Forward]:
    """A local port for each. Raises Refused for a required local port that is in use."""
    taken: set[int] = set()
    found = []
    for one in sorted(wanted, key=lambda one: one.local is None):
        local = one.local if one.local is not None else _next_free(one.remote, address, is_free, taken)
        if local in taken:
            raise Refused(f"Port {local} of this machine is asked for twice.", hint="Choose another with -p.")
        if one.local is not None and not is_free(address, local):
            raise busy(local, one.remote)
        taken.add(local)
        found.append(Forward(address, local, one.remote))
    return sorted(found, key=lambda one: one.remote)


def _next_free(start: int, address: str, is_free: IsFree, taken: set[int]) -> int:
    for number in chain(range(start, HIGHEST + 1), range(1024, start)):
        if number not in taken and is_free(address, number):
            return number
    raise busy(start, start)


def busy(local: int, remote: int) -> Refused:
    return Refused(
        f"Port {local} of this machine is in use, so port {remote} of the run can't be forwarded to it.",
        hint=f"Stop what uses it, or choose another: -p {local + 1 if local < HIGHEST else local - 1}:{remote}.",
    )


def is_free(address: str, port: int) -> bool:
    """Can this process listen on the address and port?"""
    try:
        places = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Refused(f"--host {address}: {error.strerror}.", hint="Use an address of this machine.") from error
    for family, kind, _, _, place in places:
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as SSH does
            try:
                probe.bind(place)
            except PermissionError:
                hint = f"Choose a port from 1024 on: -p {port + 8000}:PORT."
                raise Refused(f"Port {port} of this machine is only for privileged users.", hint=hint) from None
            except OSError as error:
                if error.errno in _NO_SUCH_ADDRESS and len(places) > 1:
                    continue  # `localhost` may resolve to both families where only one exists
                if error.errno in _NO_SUCH_ADDRESS:
                    hint = "Use one of its addresses, or leave it out."
                    raise Refused(f"--host {address}: this machine has no such address.", hint=hint) from error
                return False
    return True


def _port(value: object) -> int:
    if type(value) is not int or not 1 <= value <= HIGHEST:
        raise Refused(f"The server sent {str(value)[:40]!r} as a port.", hint="Is it the server you mean?")
    return value
