"""Routes to a job's SSH server: over its machine, perhaps behind a head node, or through the control plane."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from chalicelib.errors import Refused
from cli.ssh.config import Hop, JobHops

if TYPE_CHECKING:
    from chalicelib import contract

SSH_PORT = "10022"  # the name of the job's SSH server among its ports


class LocalSsh(Protocol):
    """The SSH client of this machine."""

    def answers(self, hop: Hop) -> bool: ...
    def own_keys(self, host: str) -> tuple[str, ...]: ...


class NoSshServer(Refused):
    """The job has no SSH server."""


class NotKnownYet(Exception):
    """It isn't known yet whether the job has an SSH server."""


def alias_of(run_name: str, job_spec: contract.JobSpec) -> str:
    """The host's name in the SSH configuration: the run's name or, for other replicas and nodes, the job's."""
    job, replica = job_spec["job_num"], job_spec["replica_num"]
    return f"{run_name}-{job}-{replica}" if job or replica else run_name


def check_server(submission: contract.Submission) -> None:
    """Raises NoSshServer for a running job that has no SSH server."""
    placed, login = submission["job_provisioning_data"], submission["login"]
    if login is None and _port(submission) is None and (placed is None or placed["dockerized"]):
        raise NotKnownYet
    if login is not None and not login["port"]:
        why = str(login["problem"] or "its machine has no SSH server for it").rstrip(".")
        hint = "Jobs that start after it is fixed can be attached to."
        raise NoSshServer(f"This job takes no SSH connections: {why}.", hint=hint)


def routes_to(
    submission: contract.Submission,
    alias: str,
    identity: Path,
    proxy: tuple[str, ...],
    local: LocalSsh,
) -> list[JobHops]:
    """The routes to a job with an SSH server, best first."""
    placed, login = submission["job_provisioning_data"], submission["login"]
    runtime = submission["job_runtime_data"]
    keys, host_key = (str(identity),), login["host_key"] if login else ""
    user = (runtime["username"] if runtime else None) or "root"
    port = _port(submission)
    if placed and not placed["dockerized"]:  # no machine in between: the job is on this one, or directly reachable
        if login and not placed["hostname"]:
            return [JobHops(alias, _hop("localhost", port, user, host_key, keys), proxy=proxy)]
        at_once = JobHops(alias, _hop(placed["hostname"], placed["ssh_port"], user, host_key, keys))
        if not login:
            return [at_once]
        through_plane = JobHops(alias, replace(at_once.job, host="localhost"), proxy=proxy)
        return [at_once, through_plane] if local.answers(at_once.job) else [through_plane]
    job = _hop("localhost", port, user, host_key, keys)
    through_plane = JobHops(alias, job, proxy=proxy)
    hops = _hops(placed, keys, local) if placed else ()
    if not hops or not local.answers(hops[0]):
        return [through_plane]
    return [JobHops(alias, job, hops), through_plane]


def _port(submission: contract.Submission) -> int | None:
    runtime, login = submission["job_runtime_data"], submission["login"]
    return (login["port"] if login else 0) or (runtime["ports"].get(SSH_PORT) if runtime else None)


def _hop(host: str | None, port: int | None, user: str, host_key: str, keys: tuple[str, ...]) -> Hop:
    """From what a server sent, which `Hop` checks, nulls included."""
    return Hop(cast("str", host), cast("int", port), user, host_key, keys)


def _hops(placed: contract.ProvisioningData, keys: tuple[str, ...], local: LocalSsh) -> tuple[Hop, ...]:
    """The machine's SSH server and the head node before it; empty if nobody can log in there."""
    if not placed["hostname"] or not placed["ssh_port"]:
        return ()
    host = _hop(placed["hostname"], placed["ssh_port"], placed["username"] or "root", "", keys)
    jump = placed["ssh_proxy"]
    if not jump:
        return (host,)
    first = _hop(jump["hostname"], jump["port"] or 22, jump["username"], "", ())
    keys = (*local.own_keys(first.host), *keys)  # a head node may not accept our key, but the user's own
    return (replace(first, identities=keys, identities_only=False), host)
