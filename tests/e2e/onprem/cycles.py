"""Adds a host to a fleet and removes it again, many times: `python -m tests.e2e.onprem.cycles [100]`.

Its last line is JSON: the seconds of a cycle, what the host has afterwards that it hadn't before, and which of the
server's records, descriptors and threads grew with the number of cycles. What is kept for a time on purpose (what
happened, instances that ended) is left out: `docs/reference/retention.md` says how long each stays.
"""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.e2e.hosts import snapshot
from tests.e2e.hosts.spec import workers
from tests.e2e.onprem.lab import Lab, lab
from tests.harness.server import until

RETAINED = (
    "events/",
    "instance/* status",
    "instance/* presence",
    "workflow/",
    "fleet/",
    "health/",
    "project/* fleet-name",
)


def records(one: Lab) -> Counter[str]:
    """How many of each family of keys."""
    (path,) = one.server.home.rglob("plane.db")
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        keys = [re.sub(r"[0-9a-f-]{20,}|\d+", "*", f"{pk} {sk}") for pk, sk in db.execute("SELECT pk, sk FROM records")]
    return Counter(key for key in keys if not key.startswith(RETAINED))


def held(one: Lab) -> dict[str, int]:
    """By the server's process."""
    assert one.server.process is not None
    at = Path("/proc", str(one.server.process.pid))
    return {name: len(list((at / name).iterdir())) for name in ("fd", "task")}


def cycle(one: Lab) -> None:
    one.apply(one.fleet("lab", one.site.workers))
    assert set(one.statuses("lab").values()) == {"idle"}
    one.delete("lab")


def measured(folder: Path, cycles: int) -> dict[str, object]:
    with lab(folder, workers(1)) as one:
        (host,) = one.site.workers
        cycle(one)  # what is made once and stays: the pools of the server, the caches of the host
        before, known, at_first = snapshot.take(host), records(one), held(one)
        began = time.monotonic()
        for _ in range(cycles):
            cycle(one)
        seconds = (time.monotonic() - began) / cycles
        until("the last login to end", lambda: not before.changes(snapshot.take(host)), every=1.0)
        grew = {name: count - known[name] for name, count in records(one).items() if count > known[name]}
        now = held(one)
        more = {name: now[name] - count for name, count in at_first.items() if now[name] > count}
        left = before.changes(snapshot.take(host))
    return {"cycles": cycles, "seconds_each": round(seconds, 2), "left": left, "records": grew, "server": more}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        seen = measured(Path(folder), int(sys.argv[1]) if len(sys.argv) > 1 else 100)
    print(json.dumps(seen))
    return 0 if not seen["left"] and not seen["records"] else 1


if __name__ == "__main__":
    sys.exit(main())
