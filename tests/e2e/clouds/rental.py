"""A rented host: the product's server at a site's control, clouds that it can call there, and the host that boots what
they sell.

Each cloud is served until the end of all journeys. A server waits as long as a provider's lists may lag before it takes
a machine for gone, and meanwhile the next cloud's journey can begin.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.clouds.cloud import CLOUDS, PRICES, Cloud, cloud_of, price_file
from tests.e2e.hosts.host import Host
from tests.e2e.hosts.network import CONTROL
from tests.e2e.hosts.site import or_skipped
from tests.e2e.hosts.spec import HostSpec
from tests.e2e.hosts.stubs import nvidia
from tests.e2e.onprem.lab import SMALL, Lab
from tests.harness.images import busybox_image
from tests.harness.server import until

PORT = 3000
PORTS = {name: 4600 + number for number, name in enumerate(CLOUDS)}  # where they are served, of control's own loopback
MACHINE = HostSpec("machine", stubs=(nvidia(("NVIDIA GeForce RTX 4090", 24564)),))  # for a cloud without smaller ones
DISK = "/var/lib/dstack*"  # all that a boot script and an agent write


class Rental:
    """What a user of a cloud does, and what its machine does meanwhile. Fleet and run have one name."""

    def __init__(self, lab: Lab, cloud: Cloud, name: str) -> None:
        self.lab, self.cloud, self.name = lab, cloud, name
        self._booted: list[str] = []

    @property
    def host(self) -> Host:
        return self.lab.site.workers[0]

    def fleet(self, **more: Any) -> None:
        rest = {
            "nodes": "0..1",
            "backends": [self.cloud.type],
            "resources": SMALL,
            "idle_duration": "1s",
            **self.cloud.fleet,
            **more,
        }
        self.lab.apply({"type": "fleet", "name": self.name, **rest})

    def task(self, command: str, **more: Any) -> None:
        resources = self.cloud.fleet.get("resources", SMALL)
        self.lab.apply({**self.lab.task(self.name, command, self.name), "resources": resources, **more}, "-d")

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

    def gone(self) -> bool:
        return not self.cloud.owned()


def _unit(machine: str) -> str:
    return "machine-" + "".join(each if each.isalnum() else "-" for each in machine)


class Clouds:
    """Those that are served, and the journeys in them."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self._served = lab, dict[str, Cloud]()
        self._ended: list[Rental] = []
        self._open = ExitStack()

    @contextmanager
    def rental(self, type: str, name: str = "") -> Iterator[Rental]:
        """Of a machine there. `name`: the fleet's, the cloud's if it isn't given."""
        if type not in self._served:
            self._add(type)
        rental = Rental(self.lab, self._served[type], name or type)
        try:
            yield rental
            self.lab.server.cli("fleet", "delete", rental.name, "-y")
            until("everything to be given back", rental.gone)
            self._ended.append(rental)
        finally:
            rental.off()

    def _add(self, type: str) -> None:
        home, cloud = self.lab.server.home, cloud_of(type)
        served = cloud.serving(PORTS[type])
        self.lab.site.control.within(served.__enter__)
        self._open.push(served)
        self._served[type] = cloud
        price_file(home, *self._served.values())
        (home / "backend.yml").write_text(json.dumps(cloud.config))
        self.lab.server.cli("backend", "add", "-f", "backend.yml", "-y")
        until(f"the offers of {type}", lambda: self._has_offers(type))

    def _has_offers(self, type: str) -> bool:
        (found,) = [
            each for each in self.lab.server.call("/api/project/main/backends/list", {}) if each["name"] == type
        ]
        return found.get("offers_taken_at") is not None

    def end(self) -> None:
        """Of the journeys that came to their ends, nothing is left at the server either."""
        with self._open:
            for rental in self._ended:
                until(f"the fleet {rental.name} to be gone", lambda name=rental.name: self.lab.gone(name))
            for type in {rental.cloud.type for rental in self._ended}:
                self.lab.server.cli("backend", "delete", type, "-y")
                assert not self._served[type].owned()


@contextmanager
def clouds_at(folder: Path) -> Iterator[Clouds]:
    endpoints = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in PORTS.items())
    env = {"DSTACK_BACKEND_ENDPOINTS": endpoints, "DSTACK_CATALOG_FILE": str(folder / PRICES)}
    flags = ("--no-local-fleet", "--host", CONTROL, "--public-url", f"http://{CONTROL}:{PORT}")
    with or_skipped([MACHINE], workers_reach_plane=True) as site:
        site.workers[0].import_image(busybox_image())
        server = site.server(folder, flags=flags, env=env)
        try:
            server.start(port=PORT)
            clouds = Clouds(Lab(site, server))
            yield clouds
            clouds.end()
        finally:
            server.close()
