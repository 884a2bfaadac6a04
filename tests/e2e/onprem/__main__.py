"""The journey on real hosts: `make e2e-onprem [HOSTS=20]`. Its last line is JSON: what it saw, how long each stage
took, and how many times as long all hosts took as one.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.e2e.hosts import snapshot
from tests.e2e.hosts.spec import workers
from tests.e2e.onprem.lab import Lab, lab
from tests.e2e.test_attach_real import DSTACK, Client
from tests.harness.server import until

HOSTS = 3
ONE_IDLE, ALL_IDLE = "apply: one host idle", "apply: all hosts idle"
ATTACHED = "attach: `ssh RUN` works"
FIRST_LINE = "second container task: its first line"


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


def journey(folder: Path, hosts: int = HOSTS) -> dict[str, Any]:
    watch = Watch()
    with lab(folder, workers(hosts)) as one:
        watch.lap("hosts and server up")
        first, last = one.site.workers[0], one.site.workers[-1]
        before = {host.name: snapshot.take(host) for host in one.site.workers}
        watch.lap("hosts looked at")
        one.apply(one.fleet("single", one.site.workers[:1]))
        watch.lap(ONE_IDLE)
        one.delete("single")
        watch.lap("its fleet deleted")
        one.apply(one.fleet("lab", one.site.workers))
        watch.lap(ALL_IDLE)
        statuses = one.statuses("lab")
        one.apply(one.task("first", "echo first", "lab"))
        watch.lap("first container task")
        shown = first_line(one, watch, one.task("second", "echo the second; sleep 1", "lab"), "the second")
        watch.lap("and its end")
        ran = one.apply(one.task("again", "echo again", "lab"))
        watch.lap("one more container task, to its end")
        health = out_of_order(one, watch)
        attached(one, watch, folder)
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
    return {
        "hosts": statuses,
        "ran": shown and "again done" in ran,
        "left": left,
        "health": health,
        "attach_s": watch.seconds[ATTACHED],
        "idle_s": watch.seconds[ALL_IDLE],
        "times_one_host": round(watch.seconds[ALL_IDLE] / watch.seconds[ONE_IDLE], 2),
        "first_line_s": watch.seconds[FIRST_LINE],
        "seconds": watch.seconds,
    }


def out_of_order(one: Lab, watch: Watch) -> list[str]:
    """The engine of one host stops and comes back. What its health was meanwhile, and what a run waited for."""
    host = one.site.workers[0]

    def health() -> str:
        found = {each["hostname"]: each["health_status"] for each in one.instances("lab")}
        return str(found[host.address])

    host.systemctl("stop", "docker.socket", "docker.service")
    until("the host to be out of order", lambda: health() == "failure")
    watch.lap("an engine stopped: its host out of order")
    number = next(each["instance_num"] for each in one.instances("lab") if each["hostname"] == host.address)
    one.apply(one.task("waits", "echo it is back", "lab", instances=[{"fleet": "lab", "instance": number}]), "-d")
    until("it to say why it waits", lambda: "to be healthy again" in one.server.cli("ps", "-v"))
    host.systemctl("start", "docker")
    until("the run to end", lambda: "waits" not in one.active())
    watch.lap("it is back, and has run what waited for it")
    query = {"fleet_name": "lab", "instance_num": number}
    found = one.server.call("/api/project/main/instances/get_instance_health_checks", query)
    return [check["status"] for check in reversed(found["health_checks"])]


def first_line(one: Lab, watch: Watch, task: dict[str, Any], line: str) -> bool:
    """Apply a task, and read what that shows until the first line of its job."""
    with one.server.attached("apply", "-f", one.write(task), "-y") as lines:
        found = any(shown.strip() == line for shown in lines)
        watch.lap(FIRST_LINE)
    until(f"{task['name']} to end", lambda: task["name"] not in one.active())
    return found


def attached(one: Lab, watch: Watch, folder: Path) -> None:
    """Until somebody can log in to a job, with a key that the head node doesn't know: so through the server."""
    one.apply(one.task("long", "echo here; sleep 600", "lab"), "-d")
    until("it to run", lambda: "running" in one.server.cli("ps"))
    watch.lap("a task that stays")
    with contextlib.closing(Client(one.server, folder, "attach", "long", program=[*one.server.prefix, *DSTACK])) as me:
        me.wait_for("ssh long\n")
        watch.lap(ATTACHED)
        me.detach()
    one.server.cli("stop", "long", "-y", "-x")
    until("it to end", lambda: "running" not in one.server.cli("ps"))
    watch.lap("detached, and stopped")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        seen = journey(Path(folder), int(sys.argv[1]) if len(sys.argv) > 1 else HOSTS)
    print(json.dumps(seen))
    well = seen["health"][-2:] == ["failure", "healthy"]
    return 0 if seen["ran"] and well and not seen["left"] else 1


if __name__ == "__main__":
    sys.exit(main())
