"""A volume's whole life, many times: created, attached for a run on an idle machine, detached, deleted."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.hosts import snapshot
from tests.e2e.hosts.spec import workers
from tests.e2e.onprem.cycles import records
from tests.e2e.volumes.lab import Clouds, clouds
from tests.harness.server import until

# What happened stays for a time: `docs/reference/retention.md` says how long.
RETAINED = ("run/", "job/", "jobs/", "log/", "volume/* status", "project/* volume-name/", "project/* run-name/")
LOCK = "/run/dstack-volumes/locks/"  # empty files, which stay until the machine restarts or the agent leaves
SETTLING = 120.0  # seconds at most


def cycle(lab: Clouds, number: int, *, image: bool) -> float:
    """How long the run took from its submission, with a volume that is ready, until it ran."""
    volume, run = f"v-{number}", f"r-{number}"
    lab.volume(volume)
    submitted = time.monotonic()
    lab.submit(run, "echo kept > /volume/file; cat /volume/file", "one", volume, image=image)
    until(f"{run} to run", lambda: lab.status(run) not in ("pending", "submitted", "provisioning"), every=0.02)
    seconds = time.monotonic() - submitted
    assert lab.end_of(run) == "done", lab.server.cli("ps", "-a", "-v")
    lab.given_back(volume)
    lab.server.call("/api/project/main/volumes/delete", {"names": [volume]})
    return seconds


def settled(left_now: Callable[[], list[str]]) -> list[str]:
    """What is left, once the last processes and logins have had their time."""
    end = time.monotonic() + SETTLING
    while (left := left_now()) and time.monotonic() < end:
        time.sleep(1.0)
    return left


def files(lab: Clouds) -> Counter[str]:
    """Of the cloud: its images and what it knows of each."""
    return Counter(path.parent.name for path in lab.images.parent.glob("*/*"))


def measured(folder: Path, cycles: int, *, image: bool = True) -> dict[str, Any]:
    with clouds(folder, workers(1, docker=image)) as lab:
        host = lab.machine("one")
        lab.behave()
        cycle(lab, 0, image=image)  # what is made once and stays
        until("the first volume to be gone", lambda: not lab.volumes())
        for folder in ("tasks", "trash"):
            cleared = host.root / "var/lib/dstack" / folder
            until(f"{folder} to be empty", lambda cleared=cleared: not cleared.exists() or not list(cleared.iterdir()))
        before, known, at_first = snapshot.take(host), records(lab), files(lab)
        began = time.monotonic()
        starts = [cycle(lab, number, image=image) for number in range(1, cycles + 1)]
        seconds = (time.monotonic() - began) / cycles
        until("the last volume to be gone", lambda: not lab.volumes())
        changes = settled(lambda: [line for line in before.changes(snapshot.take(host)) if LOCK not in line])
        grew = {name: f"{count - known[name]} more" for name, count in records(lab).items() if count > known[name]}
        return {
            "cycles": cycles,
            "start_s": {"median": round(statistics.median(starts), 2), "most": round(max(starts), 2)},
            "seconds_each": round(seconds, 2),
            "left": [*changes, *lab.left(), *map(str, (files(lab) - at_first).items())],
            "records": {name: more for name, more in grew.items() if not name.startswith(RETAINED)},
        }
