"""Routes to a job's SSH server: over its machine, perhaps behind a head node, or through the control plane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from chalicelib.errors import Refused
from cli.ssh.config import Hop, JobHops

SSH_PORT = "10022"  # the name of the job's SSH server among its ports


class LocalSsh(Protocol):
    """The SSH client of this machine."""

    def answers(self, hop: Hop) -> bool: ...
    def own_keys(self, host: str) -> tuple[str, ...]: ...


class NoSshServer(Refused):
    """The job has no SSH server."""


class NotKnownYet(Exception):
    """It isn't known yet whether the job has an SSH server."""


def alias_of(run_name: str, job_spec: Mapping[str, Any]) -> str:
    """The host's name in the SSH configuration: the run's name or, for other replicas and nodes, the job's."""
    job, replica = int(job_spec.get("job_num", 0)), int(job_spec.get("replica_num", 0))
    return f"{run_name}-{job}-{replica}" if job or replica else run_name


def check_server(submission: Mapping[str, Any]) -> None:
    """Raises NoSshServer for a running job that has no SSH server."""
    placed, login = submission.get("job_provisioning_data") or {}, submission.get("login")
    if login is None and _port(submission) is None and placed.get("dockerized") is not False:
        raise NotKnownYet
    if login is not None and not login.get("port"):
        why = str(login.get("problem") or "its machine has no SSH server for it").rstrip(".")
        hint = "Jobs that start after it is fixed can be attached to."
        raise NoSshServer(f"This job takes no SSH connections: {why}.", hint=hint)


def routes_to(
    submission: Mapping[str, Any],
    alias: str,
    identity: Path,
    proxy: tuple[str, ...],
    local: LocalSsh,
) -> list[JobHops]:
    """The routes to a job with an SSH server, best first."""
    placed = submission.get("job_provisioning_data") or {}
    login = submission.get("login") or {}
    keys, host_key = (str(identity),), login.get("host_key") or ""
    user = (submission.get("job_runtime_data") or {}).get("username") or "root"
    port = _port(submission)
    if placed.get("dockerized") is False:  # no machine in between: the job is on this one, or directly reachable
        if login and not placed.get("hostname"):
            return [JobHops(alias, Hop("localhost", port, user, host_key, keys), proxy=proxy)]
        at_once = JobHops(alias, Hop(placed["hostname"], placed["ssh_port"], user, host_key, keys))
        if not login:
            return [at_once]
        through_plane = JobHops(alias, replace(at_once.job, host="localhost"), proxy=proxy)
        return [at_once, through_plane] if local.answers(at_once.job) else [through_plane]
    job = Hop("localhost", port, user, host_key, keys)
    through_plane = JobHops(alias, job, proxy=proxy)
    hops = _hops(placed, keys, local)
    if not hops or not local.answers(hops[0]):
        return [through_plane]
    return [JobHops(alias, job, hops), through_plane]


def _port(submission: Mapping[str, Any]) -> Any:
    runtime, login = submission.get("job_runtime_data") or {}, submission.get("login") or {}
    return login.get("port") or (runtime.get("ports") or {}).get(SSH_PORT)


def _hops(placed: Mapping[str, Any], keys: tuple[str, ...], local: LocalSsh) -> tuple[Hop, ...]:
    """The machine's SSH server and the head node before it; empty if nobody can log in there."""
    if not placed.get("hostname") or not placed.get("ssh_port"):
        return ()
    host = Hop(
        placed["hostname"],
        placed["ssh_port"],
        placed.get("username") or "root",
        placed.get("ssh_host_key") or "",
        keys,
    )
    jump = placed.get("ssh_proxy")
    if not jump:
        return (host,)
    port, key = jump.get("port") or 22, jump.get("ssh_host_key") or ""
    first = Hop(jump["hostname"], port, jump["username"], key)
    keys = (*local.own_keys(first.host), *keys)  # a head node may not accept our key, but the user's own
    return (replace(first, identities=keys, identities_only=False), host)
