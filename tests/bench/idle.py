"""What an embedded server costs while nobody asks anything of it."""

from __future__ import annotations

import time

from tests.bench.measure import cpu_of, report, rss_mb, running_server, server_pid, wait_local_host


def main(seconds: float = 60.0) -> None:
    with running_server() as server:
        wait_local_host(server)
        time.sleep(5)
        pid = server_pid(server)
        before, begun = cpu_of(pid), time.monotonic()
        time.sleep(seconds)
        share = (cpu_of(pid) - before) / (time.monotonic() - begun)
        report("idle", core_percent=round(share * 100, 3), rss_mb=rss_mb(pid), seconds=seconds, budget=[0.2, 120])


if __name__ == "__main__":
    main()
