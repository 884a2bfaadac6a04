"""The way to a replica over its agent's streams, beside a direct connection to the same replica: what one request takes
more, requests a second of 32 connections, 300 new ones at once, and how soon a cut tunnel is back. Through a real
server and a real agent, all of them and the clients on one machine."""

from __future__ import annotations

import asyncio
import statistics

from tests.bench.measure import report
from tests.harness.relays import Tunnel, back_after_a_cut, burst, one_by_one, rate, served
from tests.harness.server import Server

RUNS, REQUESTS, SECONDS, CUTS = 5, 1000, 3.0, 5


def main() -> None:
    with served() as (server, path, port):
        added: dict[str, list[float]] = {"p50": [], "p99": []}
        rates: dict[str, list[float]] = {"direct": [], "relay": []}
        bursts: list[float] = []
        lost = 0
        for _ in range(RUNS):
            direct, relay = (asyncio.run(one_by_one(place, REQUESTS)) for place in (port, path))
            for name, part in (("p50", 50), ("p99", 99)):
                added[name].append(1000 * (percentile(relay, part) - percentile(direct, part)))
            rates["direct"].append(asyncio.run(rate(port, 32, SECONDS)))
            rates["relay"].append(asyncio.run(rate(path, 32, SECONDS)))
            answered, taken = asyncio.run(burst(path, 300))
            lost += 300 - answered
            bursts.append(taken)
        report(
            "relay",
            added_p50_ms=added["p50"],
            added_p99_ms=added["p99"],
            direct_32_per_s=rates["direct"],
            relay_32_per_s=rates["relay"],
            burst_300_s=bursts,
            burst_lost=[float(lost)],
            back_after_cut_s=asyncio.run(cuts(server, path)),
        )


async def cuts(server: Server, path: str) -> list[float]:
    async with Tunnel(server) as tunnel:
        return [await back_after_a_cut(tunnel, path) for _ in range(CUTS)]


def percentile(samples: list[float], part: int) -> float:
    return statistics.quantiles(samples, n=100)[part - 1]


if __name__ == "__main__":
    main()
