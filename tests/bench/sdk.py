"""The SDK for Python beside what it stands on: its import over that of httpx, and 1,000 submissions from one process
beside those of httpx alone, with as many threads and connections, to the same server."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from dstack_serverless import Client
from tests.bench.measure import over, process_cpu_ms, report, running_server, task
from tests.harness.server import Server

RUNS, ROUNDS, AT_ONCE = 1000, 5, 16
NAMES = (f"run-{number}" for number in itertools.count())


def main() -> None:
    httpx_alone = process_cpu_ms([sys.executable, "-c", "import httpx"])
    imported = process_cpu_ms([sys.executable, "-c", "from dstack_serverless import Client"])
    with running_server("--no-local-fleet") as server:
        ratios, raw, own = _rates(server)
    report(
        "sdk",
        import_cpu_ms=over(imported, httpx_alone),
        of_raw_percent=ratios,
        httpx_import_cpu_ms=httpx_alone,
        submissions_per_s=own,
        raw_submissions_per_s=raw,
    )


def _rates(server: Server) -> tuple[list[float], list[float], list[float]]:
    """In turn, so that both meet as many runs that are there already."""
    raw, own = list[float](), list[float]()
    with Client(server.url, server.token, "main") as client, _raw(server) as http:
        for number in range(ROUNDS + 1):
            configurations = [task(next(NAMES), "true")["configuration"] for _ in range(2 * RUNS // ROUNDS)]
            ours, theirs = configurations[::2], configurations[1::2]
            rates = [_rate(lambda given: client.runs.submit_many(given, at_once=AT_ONCE), ours)]
            rates.append(_rate(lambda given: _submit_all(http, given), theirs))
            if number:  # the first opens the connections
                own.append(rates[0])
                raw.append(rates[1])
    return [100 * ours / theirs for ours, theirs in zip(own, raw, strict=True)], raw, own


def _raw(server: Server) -> httpx.Client:
    headers = {"Authorization": f"Bearer {server.token}"}
    limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
    return httpx.Client(base_url=server.url, headers=headers, limits=limits, timeout=60, verify=False)


def _submit_all(http: httpx.Client, configurations: list[dict[str, Any]]) -> list[Any]:
    def submitted(configuration: dict[str, Any]) -> Any:
        spec = {"repo_id": "none", "repo_data": {"repo_type": "virtual"}, "configuration": configuration}
        body = {"plan": {"run_spec": spec, "current_resource": None}, "force": False}
        return http.post("/api/project/main/runs/apply", json=body).raise_for_status().json()

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(submitted, configurations))


def _rate(work: Callable[[list[Any]], Any], configurations: list[Any]) -> float:
    begun = time.perf_counter()
    found = work(configurations)
    seconds = time.perf_counter() - begun
    if not all(isinstance(run, dict) and run["id"] for run in found):
        raise SystemExit(f"a submission failed: {found}")
    return len(configurations) / seconds


if __name__ == "__main__":
    main()
