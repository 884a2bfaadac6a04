"""What an embedded server costs with 1,000 hosts on which nothing happens: each has a poll waiting, all the time."""

from __future__ import annotations

import argparse
import multiprocessing
import time

from tests.bench.burst import host_process, joined
from tests.bench.hosts import add_hosts
from tests.bench.measure import report, rss_mb, running_server, server_pid, threads_cpu_of
from tests.harness.server import until

SETTLING, SECONDS = 35, 60  # a poll is renewed every 25 s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=1_000)
    count = parser.parse_args().hosts
    with running_server("--no-local-fleet") as server:
        project = server.call("/api/projects/main/get")
        tokens = add_hosts(server.data, project["project_id"], count)
        _, child_end = multiprocessing.Pipe()
        crowd = multiprocessing.Process(target=host_process, args=(server.url, tokens, 1.0, child_end))
        crowd.start()
        try:
            until("all hosts to join", lambda: joined(server) == count, seconds=300, every=1.0)
            time.sleep(SETTLING)
            pid = server_pid(server)
            before, begun = threads_cpu_of(pid), time.monotonic()
            time.sleep(SECONDS)
            share = (threads_cpu_of(pid) - before) / (time.monotonic() - begun) * 100
            report("crowd", hosts=count, core_percent=[share], rss_mb=[rss_mb(pid)], seconds=SECONDS)
        finally:
            crowd.kill()
            crowd.join()


if __name__ == "__main__":
    main()
