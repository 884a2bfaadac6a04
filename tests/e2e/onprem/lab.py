"""A lab: a server in the control of a site, and what a person there does with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.hosts.host import Host
from tests.e2e.hosts.network import CONTROL, HEAD
from tests.e2e.hosts.site import Site, or_skipped
from tests.e2e.hosts.spec import HostSpec
from tests.harness.images import BUSYBOX, busybox_image
from tests.harness.server import Server, until

SMALL = {"cpu": "1..", "memory": "0.1GB..", "disk": "1MB.."}


@dataclass
class Lab:
    site: Site
    server: Server

    def fleet(self, name: str, hosts: Sequence[Host | dict[str, Any]], **more: Any) -> dict[str, Any]:
        """A configuration of these hosts behind the head."""
        key = str(self.site.key.path)
        jump = {"hostname": HEAD, "user": "ubuntu", "identity_file": key}
        named = [host.address if isinstance(host, Host) else host for host in hosts]
        ssh = {"user": "ubuntu", "identity_file": key, "proxy_jump": jump, "hosts": named}
        return {"type": "fleet", "name": name, "ssh_config": {**ssh, **more}}

    def write(self, configuration: dict[str, Any]) -> str:
        name = f"{configuration['name']}.dstack.yml"
        (self.server.home / name).write_text(json.dumps(configuration))
        return name

    def apply(self, configuration: dict[str, Any], *flags: str, check: bool = True) -> str:
        """What `dstack apply` says."""
        return self.server.cli("apply", "-f", self.write(configuration), "-y", *flags, check=check)

    def task(self, name: str, command: str, fleet: str, **more: Any) -> dict[str, Any]:
        return {
            "type": "task",
            "name": name,
            "image": BUSYBOX,
            "shell": "sh",
            "commands": [command],
            "fleets": [fleet],
            "resources": SMALL,
            **more,
        }

    def instances(self, fleet: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.server.call("/api/project/main/fleets/get", {"name": fleet})["instances"]
        return found

    def statuses(self, fleet: str) -> dict[str, str]:
        """By address."""
        return {one["hostname"]: one["status"] for one in self.instances(fleet)}

    def gone(self, fleet: str) -> bool:
        listed = self.server.call("/api/project/main/fleets/list", {})
        return fleet not in [one["name"] for one in listed]

    def active(self) -> list[str]:
        """The names of the runs that haven't ended."""
        found = self.server.call("/api/runs/list", {"project_name": "main", "only_active": True})
        return [run["run_spec"]["run_name"] for run in found]

    def delete(self, fleet: str, *flags: str) -> None:
        """And wait until nothing of it is left."""
        self.server.cli("fleet", "delete", fleet, "-y", *flags)
        until(f"{fleet} to be gone", lambda: self.gone(fleet))


@contextmanager
def lab(
    folder: Path,
    workers: Sequence[HostSpec],
    before: Sequence[str] = (),
    *,
    carries: bool = True,
    command: tuple[str, ...] = (),
    **more: Any,
) -> Iterator[Lab]:
    """`before`: what the server and its users are started with, in control. `carries`: the calls of agents that can't
    reach it; else it listens where the head reaches it. `command`: the program, if it isn't this checkout's."""
    with or_skipped(workers, **more) as site:
        for host in site.workers:
            if host.spec.boots and host.spec.docker:
                host.import_image(busybox_image())
        control = site.control
        listens = ("--host", CONTROL) if more.get("workers_reach_plane") or not carries else ()
        server = Server(
            folder,
            flags=("--no-local-fleet", *listens),
            network=control.path,
            opener=control.opener(),
            program="cli.main" if carries else "tests.e2e.onprem.uncarried",
            before=tuple(before),
            command=command,
        )
        try:
            server.start()
            yield Lab(site, server)
        finally:
            server.close()
