"""One volume's way through two machines, with a kill -9 on it: of whom, and at which step, is the case."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from chalicelib.agent.kernel.namespaces import VOLUMES
from tests.e2e.hosts.host import Host
from tests.e2e.volumes.lab import Clouds, identity, kill_agent, kill_supervisors, mounts
from tests.harness.server import until

ENDED = ("done", "failed", "terminated")
VICTIMS = ("server", "agent", "supervisor", "all")
STEPS = ("asked to attach", "mounted", "written", "unmounted", "asked to detach")
SLOW = 3.0  # seconds that the cloud takes for a step that is the case: long enough to be killed in
WRITES = "[ -e /volume/file ] || echo precious > /volume/file"
WAITS = "until [ -e /volume/go ]; do sleep 0.1; done"  # until the test lets it go on, once it has killed


@dataclass
class Case:
    lab: Clouds
    hosts: tuple[Host, Host]  # of the fleets `one` and `two`
    image: bool  # containers, or plain processes
    victim: str
    step: str

    @property
    def volume(self) -> str:
        return f"{self.victim}-{self.step}".replace(" ", "-")

    def play(self) -> None:
        lab, volume = self.lab, self.volume
        lab.behave(**{step: SLOW for step in ("attach", "detach") if self.step == f"asked to {step}"})
        image = lab.volume(volume)
        lab.submit(f"w-{volume}", f"{WRITES}; {WAITS}", "one", volume, image=self.image)
        self._await()
        self._kill()
        self._let_go()
        ended = lab.end_of(f"w-{volume}")
        assert ended == "done" or self._may_fail(), lab.server.cli("ps", "-a", "-v")
        lab.given_back(volume)
        assert lab.left() == []
        made = identity(image)
        lab.behave()
        if ended != "done" and self.step == "mounted":
            lab.ran(f"again-{volume}", WRITES, "one", volume, image=self.image)
        output = lab.ran(f"r-{volume}", "cat /volume/file", "two", volume, image=self.image)
        assert output.split()[-1] == "precious", output
        lab.given_back(volume)
        assert identity(image) == made != b"", "formatted twice"
        lab.drop(volume)
        assert lab.left() == [] and not image.exists()

    def _let_go(self) -> None:
        """The job goes on, unless it has been killed."""
        until("the job to go on", lambda: self._opened() or self.lab.status(f"w-{self.volume}") in ENDED, every=0.1)

    def _opened(self) -> bool:
        """By way of an open folder, which is the volume's even if that is unmounted meanwhile."""
        for file in (self.hosts[0].root / VOLUMES[1:] / "disks").glob("*/file"):
            with suppress(FileNotFoundError):
                there = os.open(file.parent, os.O_DIRECTORY)
                try:
                    os.stat("file", dir_fd=there)
                    os.close(os.open("go", os.O_CREAT | os.O_WRONLY, dir_fd=there))
                    return True
                finally:
                    os.close(there)
        return False

    def _may_fail(self) -> bool:
        """A plain process ends with its terminal, which its supervisor has; and only that one knows how it ended, until
        it has unmounted the disks and said so."""
        return (
            not self.image and self.victim in ("supervisor", "all") and self.step in ("mounted", "written", "unmounted")
        )

    def _await(self) -> None:
        host, wait = self.hosts[0], VOLUMES[1:]
        steps: dict[str, Callable[[], Any]] = {
            "asked to attach": self._attached,
            "mounted": lambda: mounts(host),
            "written": lambda: list((host.root / wait / "disks").glob("*/file")),
            "unmounted": lambda: not mounts(host),
            "asked to detach": lambda: all(each["until"] for each in self._attached().values()),  # or it is over
        }
        if self.step in ("unmounted", "asked to detach"):
            until("it to be mounted", steps["mounted"], every=0.01)
            self._let_go()
        until(self.step, steps[self.step], every=0.01)

    def _attached(self) -> dict[str, Any]:
        """What the cloud knows."""
        number = self.lab.described(self.volume)["volume_id"]
        found: dict[str, Any] = json.loads((self.lab.images.parent / "volumes" / f"{number}.json").read_text())
        return dict(found["attached"])

    def _kill(self) -> None:
        host = self.hosts[0]
        if self.victim in ("server", "all"):
            self.lab.kill_server()
        if self.victim in ("agent", "all"):
            kill_agent(host)
        if self.victim in ("supervisor", "all"):
            killed = kill_supervisors(host)
            assert killed or self.step not in ("mounted", "written"), "there was none"
        if self.victim in ("server", "all"):
            self.lab.start_server()


def cases() -> list[tuple[str, str]]:
    return [(victim, step) for victim in VICTIMS for step in STEPS]


def timed(case: Case) -> float:
    began = time.monotonic()
    case.play()
    return round(time.monotonic() - began, 2)
