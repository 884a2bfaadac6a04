"""A server whose cloud's machines are hosts, and what a person does there with volumes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chalicelib.agent.kernel import mountinfo
from chalicelib.agent.kernel.namespaces import VOLUMES
from tests.bench.measure import submit, task
from tests.e2e.hosts.host import Host
from tests.e2e.hosts.network import CONTROL
from tests.e2e.hosts.site import Site, or_skipped
from tests.e2e.hosts.spec import HostSpec
from tests.e2e.onprem.lab import SMALL, Lab
from tests.e2e.volumes.cloud import SOCKET
from tests.e2e.volumes.provider import AGENT, Provider
from tests.harness import loops
from tests.harness.images import BUSYBOX, busybox_image
from tests.harness.server import Server, until

ZONE = "sim-east-a"
IDENTITY = slice(1024 + 0x68, 1024 + 0x78)  # the filesystem's own id, drawn when it was made
MAGIC = slice(1024 + 0x38, 1024 + 0x3A)
OVER = ("done", "failed", "terminated")


@dataclass
class Clouds(Lab):
    provider: Provider

    # What a person asks for ------------------------------------------------------------------------------------------

    def machine(self, fleet: str) -> Host:
        """A fleet of one machine, once that is idle."""
        size = {**SMALL, "cpu": "2.."}
        where = {"backends": ["aws"], "regions": ["sim-east"], "availability_zones": [ZONE]}
        self.apply({"type": "fleet", "name": fleet, "nodes": 1, "idle_duration": -1, "resources": size, **where})
        until(f"{fleet} to be idle", lambda: [each["status"] for each in self.instances(fleet)] == ["idle"])
        return list(self.provider.machines.values())[-1]

    def volume(self, name: str) -> Path:
        """A new one, once it can be used; its image."""
        where = {"backend": "aws", "region": "sim-east", "availability_zone": ZONE}
        configuration = {"type": "volume", "name": name, "size": "1GB", **where}
        self.server.call("/api/project/main/volumes/create", {"configuration": configuration})
        until(f"{name} to be active", lambda: self.described(name)["status"] == "active")
        return self.images / f"{self.described(name)['volume_id']}.img"

    def submit(self, name: str, command: str, fleet: str, volume: str, *, image: bool) -> None:
        more = {"image": BUSYBOX, "shell": "sh"} if image else {}
        where = {"volumes": [f"{volume}:/volume"], "fleets": [fleet], "resources": SMALL}
        submit(self.server, task(name, command, **where, **more))

    def end_of(self, name: str) -> str:
        """How the run ended."""
        return str(until(f"{name} to end", lambda: self.status(name) in OVER and self.status(name)))

    def ran(self, name: str, command: str, fleet: str, volume: str, *, image: bool) -> str:
        """What it printed, once it has ended well."""
        self.submit(name, command, fleet, volume, image=image)
        assert self.end_of(name) == "done", self.server.cli("ps", "-a", "-v") + self.server.cli("event", check=False)
        return self.server.cli("logs", name)

    def drop(self, name: str) -> None:
        self.server.call("/api/project/main/volumes/delete", {"names": [name]})
        until(f"{name} to be gone", lambda: name not in self.volumes())

    # What there is ---------------------------------------------------------------------------------------------------

    @property
    def images(self) -> Path:
        return self.server.data / "fake-cloud" / "images"

    def status(self, run: str) -> str:
        return str(self.server.call("/api/project/main/runs/get", {"run_name": run})["status"])

    def volumes(self) -> dict[str, Any]:
        return {each["name"]: each for each in self.server.call("/api/project/main/volumes/list", {})}

    def described(self, volume: str) -> dict[str, Any]:
        found: dict[str, Any] = self.volumes()[volume]
        return found

    def given_back(self, volume: str) -> None:
        until(f"{volume} to be given back", lambda: not self.described(volume)["attachments"])

    def left(self) -> list[str]:
        """Loop devices, mounts and notes, when no run has a volume any more."""
        found = [f"{disk.path} of {disk.file.name}" for disk in loops.of(self.images)]
        for host in self.site.workers:
            found += [f"{host.name}: {place}" for place in mounts(host)]
            holds = host.root / VOLUMES[1:] / "holds"
            found += [f"{host.name}: {path.name}" for path in (holds.iterdir() if holds.exists() else ())]
        return found

    # What goes wrong -------------------------------------------------------------------------------------------------

    def behave(self, **script: Any) -> None:
        """How the cloud does from now on."""
        draft = self.server.data / "fake-cloud" / "script.new"
        draft.write_text(json.dumps({"boot": 0.0, "end": 0.0, **script}))
        draft.replace(draft.with_name("script.json"))

    def kill_server(self) -> None:
        self.server.kill()

    def start_server(self) -> None:
        """At the address that machines know."""
        self.server.start(port=int(self.server.url.rpartition(":")[2]))


def mounts(host: Host) -> list[str]:
    found = mountinfo.mounts(str(host.leader))
    return [mounted.place for mounted in found if mounted.place.startswith(f"{VOLUMES}/disks/")]


def kill_agent(host: Host) -> None:
    host.systemctl("kill", "--kill-whom=main", "--signal=KILL", AGENT)


def kill_supervisors(host: Host) -> int:
    """How many there were."""
    found = host.run("pgrep", "-f", "supervise /var/lib/dstack/tasks/", check=False).stdout.split()
    host.run("kill", "-KILL", *found, check=False)
    return len(found)


def identity(image: Path) -> bytes:
    """Of the filesystem on it; empty if there is none."""
    with image.open("rb") as disk:
        head = disk.read(2048)
    return head[IDENTITY] if head[MAGIC] == b"\x53\xef" else b""


@contextmanager
def clouds(folder: Path, workers: Sequence[HostSpec]) -> Iterator[Clouds]:
    with ExitStack() as stack:
        site: Site = stack.enter_context(or_skipped(workers, workers_reach_plane=True))
        for host in site.workers:
            if host.spec.docker:
                host.import_image(busybox_image())
        provider = stack.enter_context(Provider(site.workers, site.folder / "provider"))
        server = Server(
            folder,
            flags=("--host", CONTROL),
            env={SOCKET: str(provider.place)},
            network=site.control.path,
            opener=site.control.opener(),
            program="tests.e2e.volumes.cloud",
        )
        folder.mkdir(parents=True, exist_ok=True)
        stack.callback(loops.give_back, folder)
        stack.callback(lambda: [host.kill() for host in site.workers if host.on])
        stack.callback(server.close)
        server.start()
        yield Clouds(site, server, provider)
