"""`make e2e-gpu ARGS=--inside`: the agent inside a container that is a machine, as in a pod, on this machine's cards.

No engine is needed: this machine's own file system is the image. A container has mounts, processes and a folder for
temporary files of its own, and a root that nobody may write to, as in a restricted pod. Where the kernel refuses that,
it has none of them, and the report says so.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from chalicelib.backends.simulated import catalog
from chalicelib.backends.simulated.cloud import Boot, FakeCloud
from chalicelib.domain.gpu_names import sold_as
from chalicelib.errors import Refused
from chalicelib.runtime.carriers import Make
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.settings import ServerSettings
from tests.e2e.containers.cloud import Market, sell
from tests.e2e.gpu.journey import ENDED, HERE, Journey, smi
from tests.harness.server import Server, until
from tests.runtime.live import run_of, wait_for

MACHINE = "this.machine"  # the only type that is sold
OWN_ROOT = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
SET_UP = 'mount -t tmpfs tmpfs /tmp && mount -o remount,bind,ro / && cd /tmp && exec "$@"'
KEPT = ("PATH", "LD_LIBRARY_PATH", "LANG")  # of this machine's environment: what an image's own would be
FLEET = "type: fleet\nname: pods\nnodes: 0..1\nregions: [sim-pods]\n"
TASK = """type: task
name: {name}
image: test/this-machine
files:
  - {program}:busy.py
commands:
  - nvidia-smi --query-gpu=uuid --format=csv,noheader
  - test -w /etc && echo "the root can be written" || echo "the root can't be written"
  - python3 busy.py {seconds}
resources: {{cpu: 1.., memory: 0.1GB.., disk: 1GB.., gpu: "{gpu}"}}
"""


def isolated() -> tuple[str, ...]:
    """The words before a container's command: none where the kernel refuses a root of its own."""
    before = (*OWN_ROOT, "sh", "-c", SET_UP, "container")
    tried = subprocess.run([*before, "true"], capture_output=True, text=True, check=False)
    return before if tried.returncode == 0 else ()


class Processes:
    """Containers as processes."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._before = folder, isolated()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def launch(self, boot: Boot) -> None:
        container = boot.container
        assert container is not None, "this cloud sells nothing but containers here"
        if boot.machine_id in self._running:
            return
        own = {name: os.environ[name] for name in KEPT if name in os.environ}
        with (self._folder / f"{boot.machine_id}.log").open("ab") as output:
            self._running[boot.machine_id] = subprocess.Popen(
                [*self._before, *container["command"]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**own, "HOME": "/tmp", **container["env"]},
                start_new_session=True,
            )

    def kill(self, machine_id: str) -> None:
        running = self._running.get(machine_id)
        if running is not None and running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()

    def why_ended(self, machine_id: str) -> str:
        running = self._running.get(machine_id)
        status = None if running is None else running.poll()
        return "" if status is None else f"the container has exited ({status})"


class OfThisMachine(EmbeddedRoot):
    @staticmethod
    def simulated(settings: ServerSettings, server_url: str, program: Path) -> FakeCloud:
        catalog.TYPES.clear()
        catalog.TYPES[MACHINE] = (MACHINE, os.cpu_count() or 1, memory_gib(), cards(), "x86", 0.01)
        return Market(settings.data_dir / "fake-cloud", Processes(settings.data_dir / "containers"))

    def makes_carriers(self) -> Make:
        return no_carrier


def no_carrier(architecture: str) -> bytes:
    raise Refused("containers here have this machine's Python")


def memory_gib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30


def cards() -> tuple[int, str, int, str]:
    found = smi("name", "memory.total")
    name, memory = found[0]
    return len(found), sold_as(name), round(int(memory) / 1024), "nvidia"


class InsideJourney(Journey):
    def instances(self) -> list[dict[str, Any]]:
        (fleet,) = self.server.call("/api/project/main/fleets/list", {})
        return [each for each in fleet["instances"] if each["status"] != "terminated"]

    def apply_task(self, name: str, gpu: str, seconds: int) -> None:
        path = self.server.home / f"{name}.dstack.yml"
        path.write_text(TASK.format(name=name, program=HERE / "busy.py", seconds=seconds, gpu=gpu))
        self.server.cli("apply", "-y", "-d", "-f", str(path))


def inside(home: Path, report: Callable[[str, Any], None], seconds: int) -> bool:
    """Tells each stage as it is done. `seconds`: for which the job fills its cards. Was all as it should be?"""
    number, name, _, _ = cards()
    report("root of its own", shlex.join(isolated()) or "the kernel refuses that here")
    own = {name: os.environ[name] for name in KEPT if name in os.environ}
    with closing(Server(home, env=own, program="tests.e2e.gpu.inside")) as server:
        one = InsideJourney(server.start())
        path = home / "pods.dstack.yml"
        path.write_text(FLEET)
        server.cli("apply", "-y", "-d", "-f", str(path))
        began = time.monotonic()
        one.apply_task("inside", f"{name}:{number}", seconds)
        wait_for(server, "inside", "running", *ENDED)
        report("running_after_s", round(time.monotonic() - began, 1))
        used = one.used("inside")
        report("used", used)
        seen = one.seen("inside")
        report("seen", seen)
        submission = run_of(server, "inside")["latest_job_submission"]
        report("ended", [submission["status"], submission["exit_status"]])
        until("the container to be gone", lambda: not one.instances())
        uuids = [card[0] for card in one.cards]
        root = ["the root can't be written"] if isolated() else []
        return bool(seen[: len(uuids)] == uuids and all(line in seen for line in [*root, f"cards {number}", "ended"]))


if __name__ == "__main__":
    sys.exit(sell(sys.argv[1:], OfThisMachine))
