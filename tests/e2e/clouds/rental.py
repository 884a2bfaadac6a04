"""A rented host: the product's server at a site's control, clouds that it can call there, and the host that boots what
they sell."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.clouds.cloud import CLOUDS, PRICES, Cloud, cloud_of
from tests.e2e.hosts.host import Host
from tests.e2e.hosts.network import CONTROL
from tests.e2e.hosts.site import Site, or_skipped
from tests.e2e.hosts.spec import HostSpec
from tests.e2e.onprem.lab import SMALL, Lab
from tests.harness.images import busybox_image
from tests.harness.server import until

PORT = 3000
PORTS = {name: 4600 + number for number, name in enumerate(CLOUDS)}  # where they are served, of control's own loopback
DISK = "/var/lib/dstack*"  # all that a boot script and an agent write


class Rental:
    """What a user of one cloud does, and what its machine does meanwhile. Fleet and run have the cloud's name."""

    def __init__(self, lab: Lab, name: str, cloud: Cloud) -> None:
        self.lab, self.name, self.cloud = lab, name, cloud
        self._booted: list[str] = []

    @property
    def host(self) -> Host:
        return self.lab.site.workers[0]

    def add(self) -> None:
        self.cloud.price_file(self.lab.server.home)
        (self.lab.server.home / "backend.yml").write_text(json.dumps(self.cloud.config))
        self.lab.server.cli("backend", "add", "-f", "backend.yml", "-y")

    def fleet(self, **more: Any) -> None:
        rest = {"backends": [self.name], "resources": SMALL, "idle_duration": "1s", **self.cloud.fleet, **more}
        self.lab.apply({"type": "fleet", "name": self.name, "nodes": "0..1", **rest})

    def task(self, command: str, **more: Any) -> None:
        self.lab.apply({**self.lab.task(self.name, command, self.name), **more}, "-d")

    def run(self) -> dict[str, Any]:
        found: dict[str, Any] = self.lab.server.call("/api/project/main/runs/get", {"run_name": self.name})
        return found

    def stop(self) -> None:
        self.lab.server.cli("stop", self.name, "-y")

    def logs(self) -> str:
        return self.lab.server.cli("logs", self.name)

    def running(self) -> str | None:
        """A machine that has booted."""
        found = [machine for machine, state in self.cloud.machines() if state == self.cloud.running]
        return found[0] if found else None

    def boot(self) -> str:
        """What cloud-init does once, as root, on a disk that is new. Returns the script."""
        machine = str(until("a machine to run", self.running))
        script = self.cloud.boot_script(machine)
        self.host.run("sh", "-c", f"rm -rf {DISK}")
        self.host.write(f"/var/lib/cloud/{machine}", script, 0o700)
        self.host.run("systemd-run", f"--unit={_unit(machine)}", f"/var/lib/cloud/{machine}")
        self._booted.append(machine)
        return script

    def off(self) -> None:
        """The machines that have ended are switched off."""
        ended = [_unit(machine) for machine in self._booted if machine != self.running()]
        self.host.systemctl("stop", *ended, check=False)  # it has gone, if the script has ended
        self._booted.clear()

    def given_back(self) -> bool:
        return not self.cloud.owned() and not self.lab.instances(self.name)


def _unit(machine: str) -> str:
    return "machine-" + "".join(each if each.isalnum() else "-" for each in machine)


@contextmanager
def rented(lab: Lab, name: str) -> Iterator[Rental]:
    """With the cloud, which is served until the end; then nothing of it is left, at the server or at its own."""
    cloud = cloud_of(name)
    served = cloud.serving(PORTS[name])
    lab.site.control.within(served.__enter__)
    rental = Rental(lab, name, cloud)
    try:
        rental.add()
        yield rental
        lab.delete(name)
        lab.server.cli("backend", "delete", name, "-y")
        assert not cloud.owned()
    finally:
        rental.off()
        served.__exit__(None, None, None)


@contextmanager
def site_of_clouds(folder: Path, clouds: Sequence[str] = CLOUDS) -> Iterator[Lab]:
    with or_skipped([HostSpec("machine")], workers_reach_plane=True) as site:
        yield from _served(site, folder, clouds)


def _served(site: Site, folder: Path, clouds: Sequence[str]) -> Iterator[Lab]:
    site.workers[0].import_image(busybox_image())
    endpoints = ",".join(f"{name}=http://127.0.0.1:{PORTS[name]}" for name in clouds)
    flags = ("--no-local-fleet", "--host", CONTROL, "--public-url", f"http://{CONTROL}:{PORT}")
    server = site.server(
        folder, flags=flags, env={"DSTACK_BACKEND_ENDPOINTS": endpoints, "DSTACK_CATALOG_FILE": str(folder / PRICES)}
    )
    try:
        server.start(port=PORT)
        yield Lab(site, server)
    finally:
        server.close()
