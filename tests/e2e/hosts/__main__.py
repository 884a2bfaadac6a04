"""A site for a person: `python -m tests.e2e.hosts`, until Ctrl-C. `--bench` prints its stages' times as JSON."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import time
from dataclasses import replace
from pathlib import Path

from tests.e2e.hosts import claim
from tests.e2e.hosts.site import CONTROL, PLAIN_HEAD, Site
from tests.e2e.hosts.spec import workers
from tests.harness.debian import NotHere
from tests.harness.images import BUSYBOX, busybox_image


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.hosts", description=__doc__)
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    parser.add_argument("--light", action="store_true", help="hosts have sshd and nothing more")
    parser.add_argument("--workers-reach-plane", action="store_true", help=f"workers have a way to {CONTROL}")
    parser.add_argument("--bench", action="store_true", help="measure, and end")
    parser.add_argument("--sweep", action="store_true", help="remove what killed owners left, and end")
    options = parser.parse_args()
    try:
        if options.sweep:
            print("\n".join(claim.sweep()) or "nothing was left")
        elif options.bench:
            print(json.dumps(bench(options)))
        else:
            show(options)
    except NotHere as problem:
        raise SystemExit(f"No site can be built here: {problem}") from None


def site_of(options: argparse.Namespace) -> Site:
    head = replace(PLAIN_HEAD, boots=not options.light)
    return Site(
        workers(options.workers, boots=not options.light), head=head, workers_reach_plane=options.workers_reach_plane
    )


def show(options: argparse.Namespace) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with site_of(options) as site:
        ssh = shlex.join(site.head.ssh_prefix)
        print(f"{site.name} is up: {', '.join(f'{host.name} {host.address}' for host in site.hosts.values())}")
        print(f"  a host    {ssh} {site.specs[-1].name}")
        print(f"  control   {shlex.join(site.control.prefix)} bash      (address {CONTROL})")
        print(f"  as root   nsenter -t {site.hosts[site.specs[-1].name].leader} -a")
        print(f"  files     {site.folder}")
        print("Ctrl-C removes it.", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print()


def bench(options: argparse.Namespace) -> dict[str, object]:
    times: dict[str, float] = {}
    busybox_image()
    before = available_mib()
    mark = [time.monotonic()]

    def lap(stage: str) -> None:
        times[stage] = round(time.monotonic() - mark[0], 2)
        mark[0] = time.monotonic()

    with site_of(options) as site:
        lap("boot")
        memory = {host.name: host.memory_mib() for host in site.hosts.values()}
        taken = before - available_mib()
        last = site.hosts[site.specs[-1].name]
        last.ssh("true")
        lap("first ssh through the head")
        last.ssh("true")
        lap("second ssh")
        if last.spec.docker and last.spec.boots:
            last.import_image(busybox_image())
            lap("import an image")
            last.docker("run", "--rm", BUSYBOX, "echo")
            lap("run a container")
        last.reboot()
        lap("reboot")
    lap("removal")
    return {"workers": len(memory) - 1, "seconds": times, "memory_mib": memory, "memory_mib_of_machine": taken}


def available_mib() -> int:
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return next(int(fields[1]) >> 10 for fields in lines if fields[0] == "MemAvailable:")


if __name__ == "__main__":
    main()
