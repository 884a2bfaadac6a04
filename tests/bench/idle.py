"""What an embedded server costs while nobody asks anything of it but its own agent's long poll."""

from __future__ import annotations

import time

from tests.bench.measure import report, rss_mb, running_server, server_pid, threads_cpu_of, wait_local_host

SETTLING, SECONDS = 5, 40  # an agent's long poll is renewed every 30 s


def main() -> None:
    with running_server() as server:
        wait_local_host(server)
        time.sleep(SETTLING)
        pid = server_pid(server)
        before, begun = threads_cpu_of(pid), time.monotonic()
        time.sleep(SECONDS)
        share = (threads_cpu_of(pid) - before) / (time.monotonic() - begun) * 100
        report("idle", core_percent=[share], rss_mb=[rss_mb(pid)], seconds=SECONDS)


if __name__ == "__main__":
    main()
