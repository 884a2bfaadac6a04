"""The login to a host, read from its fleet's spec, whose keys are unsealed for this and not cached."""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.domain.fleets import FleetBody
from chalicelib.domain.instances import Instance, OnPrem
from chalicelib.domain.specs.fleets import FleetSpec, SSHKey, SSHParams, SSHProxyParams
from chalicelib.errors import Bug, Unfit
from chalicelib.hosts.connection import HostLogin
from chalicelib.store import sealed_specs
from chalicelib.store.seal import Sealer


def login_of(body_of: Callable[[str, int], FleetBody], seal: Sealer, instance: Instance) -> HostLogin:
    """`body_of`: the body of a fleet at a spec number."""
    host = instance.host
    if host is None:
        raise Bug(f"instance {instance.name} isn't a host of an SSH fleet")
    body = body_of(instance.fleet_id, host.spec_num)
    return login(sealed_specs.fleet_spec(seal, instance.fleet_id, body.spec), host)


def login(spec: FleetSpec, host: OnPrem) -> HostLogin:
    """The login of one host of this spec; its own settings win over the fleet's."""
    ssh = spec.configuration.ssh_config
    for each in ssh.each if ssh is not None else ():
        port = each.port or (ssh.port if ssh is not None else None) or 22
        if ssh is not None and (each.hostname, port) == (host.hostname, host.port):
            return HostLogin(
                hostname=each.hostname,
                port=port,
                user=each.user or ssh.user or "",
                private_key=_private(each.ssh_key or ssh.ssh_key, host.key),
                jump=_jump(each.proxy_jump or ssh.proxy_jump, ssh),
            )
    raise Bug(f"{host.key} isn't in the spec of its fleet")


def _jump(proxy: SSHProxyParams | None, ssh: SSHParams) -> HostLogin | None:
    if proxy is None:
        return None
    key = _private(proxy.ssh_key or ssh.ssh_key, proxy.hostname)
    return HostLogin(hostname=proxy.hostname, port=proxy.port or 22, user=proxy.user, private_key=key)


def _private(key: SSHKey | None, where: str) -> str:
    if key is None or not key.private:
        raise Unfit(
            f"{where}: the fleet's configuration has no private key for it; set `identity_file` and apply again"
        )
    return key.private
