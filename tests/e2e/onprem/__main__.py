"""The journey on real hosts: `make e2e-onprem`. Its last line is JSON: what it saw, and how long each stage took."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.e2e.hosts import snapshot
from tests.e2e.hosts.spec import workers
from tests.e2e.onprem.lab import lab
from tests.harness.server import until

HOSTS = 3


class Watch:
    """Stages and their times, printed on standard error as they end."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, stage: str) -> None:
        now = time.monotonic()
        self.seconds[stage] = round(now - self._last, 2)
        self._last = now
        print(f"{self.seconds[stage]:7.2f} s  {stage}", file=sys.stderr, flush=True)


def journey(folder: Path) -> dict[str, Any]:
    watch = Watch()
    with lab(folder, workers(HOSTS)) as one:
        watch.lap("hosts and server up")
        first, last = one.site.workers[0], one.site.workers[-1]
        before = {host.name: snapshot.take(host) for host in one.site.workers}
        watch.lap("hosts looked at")
        one.apply(one.fleet("lab", one.site.workers))
        watch.lap(f"apply: {HOSTS} hosts idle")
        statuses = one.statuses("lab")
        one.apply(one.task("first", "echo first", "lab"))
        watch.lap("first container task")
        ran = one.apply(one.task("second", "echo second", "lab"))
        watch.lap("second container task")
        one.apply(one.fleet("lab", one.site.workers[:-1]))
        until("the host to be cleared", lambda: last.address not in one.statuses("lab"))
        watch.lap("one host taken out")
        first.reboot()
        watch.lap("a host rebooted")
        until("its agent", lambda: not any(each["unreachable"] for each in one.instances("lab")))
        one.apply(one.task("third", "echo third", "lab"))
        watch.lap("third container task")
        one.delete("lab")
        watch.lap("fleet deleted")
        time.sleep(3)  # the last login ends
        left = [line for host in one.site.workers for line in before[host.name].changes(snapshot.take(host))]
        watch.lap("hosts looked at again")
    watch.lap("hosts gone")
    return {"hosts": statuses, "ran": "second done" in ran, "left": left, "seconds": watch.seconds}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        seen = journey(Path(folder))
    print(json.dumps(seen))
    return 0 if seen["ran"] and not seen["left"] else 1


if __name__ == "__main__":
    sys.exit(main())
