"""A site: a control, a head node and workers, booted for a test and gone with it.

    with Site(workers(2)) as site:
        site.host("w1").ssh("docker", "info")

`site.server(home)` is the product's server at control, which is started and called as any other.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.hosts import claim, keys, rootfs
from tests.e2e.hosts.host import Host, furnish
from tests.e2e.hosts.network import CONTROL, HEAD, Namespace, Network
from tests.e2e.hosts.spec import HostSpec
from tests.harness.debian import NotHere, install
from tests.harness.server import Server

# A program that each brings, and who brings it: looked for before anything is installed.
NEEDED = {
    "systemd-nspawn": "systemd-container",
    "dbus-daemon": "dbus",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "sudo": "sudo",
    "dockerd": "docker.io",
    "iptables": "iptables",
    "ip": "iproute2",
    "busybox": "busybox-static",
    "findmnt": "util-linux",
    "sysctl": "procps",
    "faketime": "faketime",
}
ALSO = ("systemd-sysv", "libpam-systemd", "python3", "tini")  # brought with them, where nothing is there yet
INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
INOTIFY_EACH = 12  # that a host takes while somebody is logged in to it: without them, its systemd doesn't start
PLAIN_HEAD = HostSpec("head", docker=False)


def check() -> None:
    """NotHere, with the reason, where no site can be built."""
    if os.geteuid() != 0:
        raise NotHere("hosts need root")
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    if not all(shutil.which(program, path=path) for program in NEEDED) or not Path("/usr/bin/python3").exists():
        install(*NEEDED.values(), *ALSO)


def room_for(hosts: int) -> None:
    """NotHere, where this machine's kernel has too little for so many."""
    needed, most = hosts * INOTIFY_EACH, int(INOTIFY.read_text())
    if needed > most:
        mend = f"sysctl fs.inotify.max_user_instances={needed}"
        raise NotHere(f"{hosts} hosts need {needed} inotify instances, and a user may have {most} (to fix it: {mend})")


class Site:
    """`workers_reach_plane`: they have a way to control, behind the head's address. Else only the head has.
    `control`: the name of a network namespace that is there already, as an engine's, and is the site's control."""

    def __init__(
        self,
        workers: Sequence[HostSpec],
        *,
        head: HostSpec = PLAIN_HEAD,
        workers_reach_plane: bool = False,
        control: str = "",
    ) -> None:
        self.specs = [head, *workers]
        self.hosts: dict[str, Host] = {}
        self._reach, self._control = workers_reach_plane, control
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Site:
        check()
        room_for(len(self.specs))
        with contextlib.ExitStack() as stack:
            self.folder = stack.enter_context(claim.claimed())
            self._build()
            for host in self.hosts.values():
                host.start()
            for host in self.hosts.values():
                host.ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()
        for host in self.hosts.values():
            host.wait_off()

    def _build(self) -> None:
        networks = {spec.name: spec.networks for spec in self.specs[1:]}
        self.network = Network(self.name, networks, workers_reach_plane=self._reach, control=self._control)
        self.network.up()
        self.key = keys.make(self.folder / "keys/ed25519")
        base = rootfs.base(self.folder / "base")
        for spec in self.specs:
            host = Host(spec, self.folder / spec.name, self.network, base)
            host.disk.mount(spec.disk_mib, spec.engine_disk_mib)
            furnish(host.disk, spec, self.key.public)
            host.ssh_prefix = (*self.control.prefix, "ssh", "-F", str(self.ssh_config))
            self.hosts[spec.name] = host
        self.ssh_config.write_text(self._ssh_config())

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def control(self) -> Namespace:
        """Where the product runs. Its address is CONTROL; it reaches the head, at HEAD, and no further."""
        return self.network.control

    @property
    def head(self) -> Host:
        return self.hosts[self.specs[0].name]

    @property
    def workers(self) -> list[Host]:
        return [self.hosts[spec.name] for spec in self.specs[1:]]

    def host(self, name: str) -> Host:
        return self.hosts[name]

    def new_key(self, kind: str, passphrase: str = "") -> keys.Key:
        """A key that every host accepts."""
        made = keys.make(self.folder / f"keys/{kind}-{len(list(self.folder.glob('keys/*')))}", kind, passphrase)
        for host in self.hosts.values():
            host.authorize(made)
        return made

    def server(self, home: Path, **more: Any) -> Server:
        """The product's server, to be started at control; hosts that have a way to it reach it at CONTROL."""
        return Server(home, network=self.control.path, opener=self.control.opener(), **more)

    @property
    def ssh_config(self) -> Path:
        return self.folder / "ssh_config"

    def _ssh_config(self) -> str:
        common = f"""  IdentityFile {self.key.path}
  IdentitiesOnly yes
  UserKnownHostsFile {self.folder}/known_hosts
  StrictHostKeyChecking accept-new
  ConnectTimeout 10
  LogLevel ERROR
"""
        text = f"Host {self.head.name}\n  HostName {HEAD}\n  User {self.head.spec.user}\n{common}"
        for host in self.workers:
            text += f"Host {host.name}\n  HostName {host.address}\n  User {host.spec.user}\n"
            text += f"  ProxyJump {self.head.name}\n{common}"
        return text


@contextlib.contextmanager
def or_skipped(workers: Sequence[HostSpec], **more: Any) -> Iterator[Site]:
    """A site for tests, which skip with the reason where none can be built."""
    with contextlib.ExitStack() as stack:
        try:
            site = stack.enter_context(Site(workers, **more))
        except NotHere as problem:
            pytest.skip(f"no hosts: {problem}")
        yield site


__all__ = ["CONTROL", "HEAD", "Site", "or_skipped"]
