"""Volumes on machines, many times: `python -m tests.e2e.volumes [--cycles 100] [--kills] [--processes]`.

Its last line is JSON. `--cycles`: so many volumes are created, attached to a machine for a run, detached and deleted;
how long a run took to start on an idle machine, and what is there afterwards that wasn't before. `--kills`: every case
of `kills`, and how long each took. Disks are loop devices; where the kernel refuses them, it says so and ends.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.e2e.hosts.spec import workers
from tests.e2e.volumes.cycles import measured
from tests.e2e.volumes.kills import Case, cases, timed
from tests.e2e.volumes.lab import clouds
from tests.harness import loops


def killed(folder: Path, *, image: bool) -> dict[str, Any]:
    seconds: dict[str, float] = {}
    with clouds(folder, workers(2, docker=image)) as lab:
        hosts = (lab.machine("one"), lab.machine("two"))
        for victim, step in cases():
            name = f"{victim} killed, {step}"
            seconds[name] = timed(Case(lab, hosts, image, victim, step))
            print(f"{seconds[name]:7.2f} s  {name}", file=sys.stderr, flush=True)
    return {"cases": len(seconds), "seconds": seconds}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.volumes", description=__doc__)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--kills", action="store_true", help="every case of a kill instead of cycles")
    parser.add_argument("--processes", action="store_true", help="plain processes instead of containers")
    options = parser.parse_args()
    if not loops.here():
        raise SystemExit("No volumes can be tried here: that takes root and loop devices.")
    image = not options.processes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "home"
        seen = killed(folder, image=image) if options.kills else measured(folder, options.cycles, image=image)
    runtime = "containers" if image else "processes"
    print(json.dumps({"disks": "loop devices", "runtime": runtime, **seen}))
    return 0 if not seen.get("left") and not seen.get("records") else 1


if __name__ == "__main__":
    sys.exit(main())
