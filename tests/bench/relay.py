"""The way to a replica over its agent's streams, beside a direct connection to the same replica: what one request takes
more, requests a second of 32 connections, 300 new ones at once, and how soon a cut tunnel is back. Through a real
server and a real agent, all of them and the clients on one machine.

`--ssh` measures the other way there could be, an OpenSSH reverse forward (`ssh -R`), in the same turns.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import socket
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.measure import report
from tests.harness.relays import Tunnel, back_after_a_cut, burst, one_by_one, rate, served
from tests.harness.server import Server, until

RUNS, REQUESTS, SECONDS, CUTS = 5, 1000, 3.0, 5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.relay", description=__doc__)
    parser.add_argument("--ssh", action="store_true", help="measure `ssh -R`, too")
    chosen = parser.parse_args()
    with served() as (server, path, port), reverse(port) if chosen.ssh else contextlib.nullcontext(0) as forwarded:
        targets: dict[str, str | int] = {"relay": path, **({"ssh": forwarded} if chosen.ssh else {})}
        found: dict[str, dict[str, list[float]]] = {kind: {} for kind in targets}
        direct_rates: list[float] = []
        for _ in range(RUNS):
            direct = asyncio.run(one_by_one(port, REQUESTS))
            direct_rates.append(asyncio.run(rate(port, 32, SECONDS)))
            for kind, place in targets.items():
                for name, value in measured(kind, place, direct).items():
                    found[kind].setdefault(name, []).append(value)
        relay = found.pop("relay")
        relay["burst_lost"] = [sum(relay["burst_lost"])]
        relay["back_after_cut_s"] = asyncio.run(cuts(server, path))
        report("relay", direct_32_per_s=direct_rates, **relay)
        for kind, figures in found.items():
            report(kind, **figures)


def measured(kind: str, place: int | str, direct: list[float]) -> dict[str, float]:
    """One turn; milliseconds are those beyond a direct connection."""
    taken = asyncio.run(one_by_one(place, REQUESTS))
    per_s = asyncio.run(rate(place, 32, SECONDS))
    answered, burst_s = asyncio.run(burst(place, 300))
    more = {f"added_p{part}_ms": 1000 * (percentile(taken, part) - percentile(direct, part)) for part in (50, 99)}
    return {**more, f"{kind}_32_per_s": per_s, "burst_300_s": burst_s, "burst_lost": float(300 - answered)}


@contextlib.contextmanager
def reverse(port: int) -> Iterator[int]:
    """A port that an sshd of our own forwards to `port`, over a connection that a client holds as an agent would."""
    with tempfile.TemporaryDirectory(prefix="reverse-") as folder, socket.socket() as one, socket.socket() as two:
        here = Path(folder)
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        door, forwarded = one.getsockname()[1], two.getsockname()[1]
        for each in (one, two):
            each.close()
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(here / name)], check=True)
        options = {
            "HostKey": here / "host", "AuthorizedKeysFile": here / "user.pub", "ListenAddress": f"127.0.0.1:{door}",
            "StrictModes": "no", "PidFile": "none", "PermitRootLogin": "yes", "UsePAM": "no", "MaxSessions": 1000,
        }  # fmt: skip
        lines = [f"{name} {value}\n" for name, value in options.items()]
        (here / "sshd_config").write_text("".join(lines))
        Path("/run/sshd").mkdir(exist_ok=True)
        sshd = subprocess.Popen(
            ["/usr/sbin/sshd", "-D", "-e", "-f", str(here / "sshd_config")], stderr=subprocess.DEVNULL
        )
        until("sshd", lambda: reached(door))
        quiet = ("StrictHostKeyChecking=no", f"UserKnownHostsFile={here / 'known'}", "ExitOnForwardFailure=yes")
        command = ["ssh", "-N", "-T", "-F", "none", "-i", str(here / "user"), "-p", str(door)]
        command += [arg for option in quiet for arg in ("-o", option)]
        command += ["-R", f"127.0.0.1:{forwarded}:127.0.0.1:{port}", f"{getpass.getuser()}@127.0.0.1"]
        client = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            until("the forward", lambda: reached(forwarded))
            yield forwarded
        finally:
            for process in (client, sshd):
                process.terminate()
                process.wait()


def reached(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


async def cuts(server: Server, path: str) -> list[float]:
    async with Tunnel(server) as tunnel:
        return [await back_after_a_cut(tunnel, path) for _ in range(CUTS)]


def percentile(samples: list[float], part: int) -> float:
    return statistics.quantiles(samples, n=100)[part - 1]


if __name__ == "__main__":
    main()
