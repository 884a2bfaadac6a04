"""The pure core: placement decisions a second, where many jobs meet as many free hosts and where few are free."""

from __future__ import annotations

from chalicelib.planning.queue import decide_queue
from chalicelib.planning.snapshots import QueueSnapshot
from tests.bench.measure import median_cpu_ms, report
from tests.planning.building import fleet, host, queued, run_spec, view, waiting

JOBS = 1000


def meeting(hosts: int) -> QueueSnapshot:
    pool = fleet()
    instances = [host(num, pool) for num in range(hosts)]
    spec = run_spec()
    ssh_config = {"hosts": [instance.name for instance in instances]}
    return waiting(
        *(queued(f"run-{n}", spec) for n in range(JOBS)), fleets=(view(pool, *instances, ssh_config=ssh_config),)
    )


def main() -> None:
    plenty, scarce = meeting(JOBS), meeting(150)
    placed = sum(bool(step.saves) for step in decide_queue(plenty).steps)
    all_ms = median_cpu_ms(lambda: decide_queue(plenty))
    scarce_ms = median_cpu_ms(lambda: decide_queue(scarce))
    report(
        "placement",
        jobs=JOBS,
        placed=placed,
        decide_cpu_ms=all_ms,
        decisions_per_cpu_s=round(JOBS / all_ms * 1000),
        on_150_hosts_cpu_ms=scarce_ms,
        budget="10,000 decisions a second",
    )


if __name__ == "__main__":
    main()
