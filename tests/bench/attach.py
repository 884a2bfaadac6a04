"""A run with a volume that is ready, on an idle machine: CPU of the whole control plane from its submission until it
runs, which takes the disk's attachment, and the same without a volume. On the world's time, in this process."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.measure import report, task
from tests.scenarios.stages import Virtual
from tests.world.embedded import EmbeddedSite

RUNS = 15
CLOUD = "aws"  # what the simulated one is called: volumes are of a type that has some
VOLUME = {
    "type": "volume",
    "name": "data",
    "backend": CLOUD,
    "region": "sim-east",
    "availability_zone": "sim-east-a",
    "size": "1GB",
}
FLEET = {"type": "fleet", "name": "machines", "nodes": 1, "availability_zones": ["sim-east-a"], "idle_duration": "off"}
MOUNTS = ["data:/data"]


@contextmanager
def opened() -> Iterator[Virtual]:
    """A stage with an idle machine and a volume that is ready."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        site = EmbeddedSite("attach", Path(folder) / "server", CLOUD)
        try:
            stage = Virtual(site, Path(folder), "work")
            spec = {"configuration": FLEET, "profile": {}}
            stage.ask("fleets/apply", {"plan": {"spec": spec, "current_resource": None}, "force": False})
            stage.ask("volumes/create", {"configuration": VOLUME})
            stage.until("the machine to be idle", partial(idle, stage))
            stage.until("the volume to be ready", lambda: volume(stage)["status"] == "active")
            yield stage
        finally:
            site.close()


def one_run(stage: Virtual, name: str, mounts: list[str]) -> float:
    """CPU milliseconds until it runs. It has ended, and its volume is free, when this returns."""
    spec = task(name, "sleep 1", volumes=mounts)
    begun = time.process_time()
    stage.ask("runs/apply", {"plan": {"run_spec": spec, "current_resource": None}, "force": False})
    stage.until(f"{name} to run", lambda: status(stage, name) not in ("submitted", "provisioning"))
    taken = (time.process_time() - begun) * 1000
    if status(stage, name) != "running" or bool(volume(stage)["attachments"]) != bool(mounts):
        raise SystemExit(f"{name} is {status(stage, name)}, and its volume is at {volume(stage)['attachments']}")
    stage.until(f"{name} to end", lambda: status(stage, name) == "done")
    stage.until("all to be free", lambda: idle(stage) and not volume(stage)["attachments"])
    return taken


def status(stage: Virtual, name: str) -> str:
    return str(stage.ask("runs/get", {"run_name": name})["status"])


def volume(stage: Virtual) -> dict[str, Any]:
    found: dict[str, Any] = stage.ask("volumes/get", {"name": "data"})
    return found


def idle(stage: Virtual) -> bool:
    return [each["status"] for each in stage.ask("fleets/get", {"name": "machines"})["instances"]] == ["idle"]


def main() -> None:
    with opened() as stage:
        gc.freeze()  # both as `dstack server` has them
        gc.set_threshold(10_000)
        samples: dict[str, list[float]] = {"with": [], "without": []}
        for number in range(RUNS + 1):
            for kind, mounts in (("with", MOUNTS), ("without", [])):
                taken = one_run(stage, f"{kind}-{number}", mounts)
                samples[kind] += [taken] if number else []  # the first one imports what it needs
        report("attach", with_volume_cpu_ms=samples["with"], without_cpu_ms=samples["without"])


if __name__ == "__main__":
    main()
