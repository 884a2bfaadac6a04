"""What an apply checks about the hosts of an SSH fleet: is every login complete, and what may change in place?"""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.specs.fleets import FleetSpec, SSHKey, SSHParams
from chalicelib.engine.read import FleetRow
from chalicelib.errors import Invalid, Problem
from chalicelib.planning.hosts import hosts_of
from chalicelib.store.port import Store
from chalicelib.usecases.fleets import refuse_if_used

_AT = "configuration.ssh_config"


def problems(spec: FleetSpec) -> list[Problem]:
    """Everything that would keep us from logging in to these hosts."""
    ssh = spec.configuration.ssh_config
    return [] if ssh is None else list(_problems(ssh))


def _problems(ssh: SSHParams) -> Iterator[Problem]:
    seen: dict[tuple[str, int], int] = {}
    known = set[str]()
    if not ssh.hosts:
        yield Problem("the list of hosts is empty", path=f"{_AT}.hosts", hint="name at least one", code="missing")
    for number, host in enumerate(ssh.each):
        at = f"{_AT}.hosts.{number}"
        place = (host.hostname, host.port or ssh.port or 22)
        if place in seen:
            text = f"{host.hostname} is listed twice (also as number {seen[place]})"
            yield Problem(text, path=at, hint="remove one of them", code="duplicate")
        seen.setdefault(place, number)
        if not (host.user or ssh.user):
            hint = "set `user` in `ssh_config` or for the host"
            yield Problem(f"no user to log in to {host.hostname} with", path=f"{at}.user", hint=hint, code="missing")
        yield from _key(host.ssh_key or ssh.ssh_key, host.hostname, at, known)
        jump = host.proxy_jump or ssh.proxy_jump
        if jump is not None:
            own = host.proxy_jump is not None
            yield from _key(jump.ssh_key or ssh.ssh_key, jump.hostname, f"{at if own else _AT}.proxy_jump", known)


def _key(key: SSHKey | None, where: str, at: str, known: set[str]) -> Iterator[Problem]:
    """A key that several hosts share is checked once and reported once."""
    from chalicelib.configuration.private_keys import plain  # cryptography, which no other plan needs

    path = f"{at}.identity_file"
    if key is None or not key.private:
        yield Problem(f"no private key to log in to {where}", path=path, hint="set `identity_file`", code="missing")
    elif key.private not in known:
        known.add(key.private)
        try:
            plain(key.private)
        except Invalid as refused:
            yield Problem(refused.message.rstrip("."), path=path, hint=refused.hint, code="invalid-value")


_LEAVING = (InstanceStatus.terminating, InstanceStatus.terminated)


def wanted(spec: FleetSpec, row: FleetRow | None) -> tuple[str, ...]:
    """Hosts that the spec names and that have no instance yet."""
    instances = row.instances if row is not None else ()
    present = {each.host.key for each in instances if each.host is not None and each.status not in _LEAVING}
    return tuple(key for key in hosts_of(spec) if key not in present)


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
    """Refuses to remove a host while a job runs on it."""
    named = hosts_of(new)
    for each in row.instances:
        if each.host is not None and each.claims and each.host.key not in named:
            refuse_if_used(store, f"The host {each.host.hostname} is", [each])
