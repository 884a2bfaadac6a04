"""Checks of an SSH fleet's hosts when it is applied: whether every login is complete, and what may change in place."""

from __future__ import annotations

import re
from collections.abc import Iterator

from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.specs.fleets import FleetSpec, SSHKey, SSHParams
from chalicelib.engine.read import FleetRow
from chalicelib.errors import Invalid, Problem
from chalicelib.planning.machines.host_networks import shared
from chalicelib.planning.machines.hosts import hosts_of
from chalicelib.printable import printable
from chalicelib.store.port import Store
from chalicelib.usecases.machines.fleets import refuse_if_used

MOST_HOSTS = 1000  # of a fleet: an apply and a list show them all
_HOSTNAME = re.compile(r"[A-Za-z0-9_:]([A-Za-z0-9._:%-]{0,251}[A-Za-z0-9._])?")
_FIELD_HINTS = {  # signs of more than a name: the hint for each
    "@": "write the user in `user`",
    "[": "write an IPv6 address without brackets",
    ":": "write the port in `port`",
}
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@+-]{0,127}\$?")
_AT = "configuration.ssh_config"


def problems(spec: FleetSpec, *, reachable: bool = True) -> list[Problem]:
    """Everything that would prevent logging in to these hosts."""
    ssh = spec.configuration.ssh_config
    if ssh is not None and ssh.hosts and not reachable:
        text = "`ssh_config` isn't supported here yet: this installation can't log in to hosts"
        hint = "run `dstack server` near the hosts, or set `hosts: []` and see `dstack fleet join-command --help`"
        return [Problem(text, path=_AT, hint=hint, code="unsupported")]
    return [] if ssh is None else list(_problems(ssh))


def _problems(ssh: SSHParams) -> Iterator[Problem]:
    yield from _names(None, ssh.user, _AT)
    if ssh.proxy_jump is not None:
        yield from _names(ssh.proxy_jump.hostname, ssh.proxy_jump.user, f"{_AT}.proxy_jump")
    seen: dict[tuple[str, int], int] = {}
    known = set[str]()
    if len(ssh.hosts) > MOST_HOSTS:
        text = f"there are {len(ssh.hosts)} hosts, and a fleet has at most {MOST_HOSTS}"
        yield Problem(text, path=f"{_AT}.hosts", hint="make several fleets", code="too-many")
        return
    for number, host in enumerate(ssh.each):
        at = f"{_AT}.hosts.{number}"
        place = (host.hostname, host.port or ssh.port or 22)
        if place in seen:
            text = f"{host.hostname} is listed twice (also as number {seen[place]})"
            yield Problem(text, path=at, hint="remove one of them", code="duplicate")
        seen.setdefault(place, number)
        yield from _names(host.hostname, host.user, at)
        if not (host.user or ssh.user):
            hint = "set `user` in `ssh_config` or for the host"
            yield Problem(f"no user to log in to {host.hostname} with", path=f"{at}.user", hint=hint, code="missing")
        yield from _key(host.ssh_key or ssh.ssh_key, host.hostname, at, known)
        jump = host.proxy_jump or ssh.proxy_jump
        if jump is not None:
            own = host.proxy_jump is not None
            yield from _key(jump.ssh_key or ssh.ssh_key, jump.hostname, f"{at if own else _AT}.proxy_jump", known)
            if own:
                yield from _names(jump.hostname, jump.user, f"{at}.proxy_jump")


def _names(hostname: str | None, user: str | None, at: str) -> Iterator[Problem]:
    """Problems of a host's and a user's name, which are printed on terminals and in commands that people copy."""
    if hostname is not None and (not _HOSTNAME.fullmatch(hostname) or hostname.count(":") == 1):
        text = f"`{printable(hostname)[:60]}` can't be the name of a host"
        hint = next((hint for sign, hint in _FIELD_HINTS.items() if sign in hostname), "write a name or an address")
        yield Problem(text, path=f"{at}.hostname", hint=hint, code="invalid-name")
    if user is not None and not _USER.fullmatch(user):
        text = f"`{printable(user)[:60]}` can't be the name of a user"
        yield Problem(text, path=f"{at}.user", hint="write a login name, such as `ubuntu`", code="invalid-name")


def _key(key: SSHKey | None, where: str, at: str, known: set[str]) -> Iterator[Problem]:
    """A key that several hosts share is checked once and reported once."""
    from chalicelib.configuration.private_keys import plain  # it loads cryptography, which no other plan needs

    path = f"{at}.identity_file"
    if key is None or not key.private:
        yield Problem(f"no private key to log in to {where}", path=path, hint="set `identity_file`", code="missing")
    elif key.private not in known:
        known.add(key.private)
        try:
            plain(key.private)
        except Invalid as refused:
            yield Problem(refused.message.rstrip("."), path=path, hint=refused.hint)


_LEAVING = (InstanceStatus.terminating, InstanceStatus.terminated)


def wanted(spec: FleetSpec, row: FleetRow | None) -> tuple[str, ...]:
    """The hosts in the spec that have no instance yet."""
    instances = row.instances if row is not None else ()
    present = {each.host.key for each in instances if each.host is not None and each.status not in _LEAVING}
    return tuple(key for key in hosts_of(spec) if key not in present)


def remaining_networks(spec: FleetSpec, row: FleetRow) -> tuple[str, ...]:
    """The networks shared by the hosts that stay."""
    named = hosts_of(spec)
    staying = [each for each in row.instances if each.host is not None and (each.host.joined or each.host.key in named)]
    return shared((), [each.networks for each in staying if each.networks and each.status not in _LEAVING])


def obstacles(old: FleetSpec, new: FleetSpec, row: FleetRow) -> list[str]:
    """Changes that can't be made to hosts while they are in the fleet."""
    before, after = old.configuration.ssh_config, new.configuration.ssh_config
    if before is None or after is None:
        return []
    found = ["configuration.ssh_config.network"] if before.network != after.network else []
    named = hosts_of(new)
    for each in row.instances:
        now = named.get(each.host.key) if each.host is not None else None
        if now is not None and each.host is not None and each.status not in _LEAVING:
            found += [
                f"configuration.ssh_config.hosts ({field} of {now.hostname})"
                for field in ("blocks", "internal_ip")
                if getattr(now, field) != getattr(each.host, field)
            ]
    return found


def refuse_busy(store: Store, new: FleetSpec, row: FleetRow) -> None:
    """Refuses to remove a host while a job runs on it, or a gateway."""
    named = hosts_of(new)
    for each in row.instances:
        used = each.claims or each.gateway
        if each.host is not None and not each.host.joined and used and each.host.key not in named:
            refuse_if_used(store, f"The host {each.host.hostname} is", [each])
