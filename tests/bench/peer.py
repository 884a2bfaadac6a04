"""dstack 0.22.5 beside this, on one machine: its command line and its server, as pip installs them.

    make bench-peer             prints both
    make bench-peer RECORD=1    keeps them in `docs/peer.json`, from which the README's table is checked

Neither server has a machine or a backend to look after, except that ours has its own host. The peer's can't fetch its
catalog of offers, since no connection leaves the machine; with it, it would take more memory.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.figures import machine
from tests.bench.measure import (
    compiled,
    cpu_of,
    process_cpu_ms,
    report,
    rss_mb,
    running_server,
    spread,
    threads_cpu_of,
)
from tests.harness.server import PATIENCE, ROOT, TOKEN, Server, until

RECORD = ROOT / "docs" / "peer.json"
PEER = Path(os.environ.get("DSTACK_PEER", ROOT / ".venvs" / "peer_server")) / "bin" / "dstack"
SETTLING, SECONDS = 20, 40
STARTS = 3

Samples = dict[str, list[float]]


def main(record: bool) -> None:
    if not PEER.exists():
        raise SystemExit(f"{PEER} isn't there. `make bench-peer` installs it.")
    own = [sys.executable, "-m", "cli.main"]
    found = {"dstack-serverless": measure(own, flags=()), "dstack 0.22.5": measure([str(PEER)], flags=("-n",))}
    for name, figures in found.items():
        report(name, **figures)
    if record:
        medians = {name: {key: spread(samples) for key, samples in each.items()} for name, each in found.items()}
        document = {"date": datetime.now(UTC).date().isoformat(), "machine": machine(), "figures": medians}
        RECORD.write_text(json.dumps(document, indent=1) + "\n")


def measure(program: list[str], flags: tuple[str, ...]) -> Samples:
    """What its command line takes, at our server, and what its own server takes."""
    figures: Samples = {"help_cpu_ms": process_cpu_ms([*program, "--help"])}
    with running_server("--no-local-fleet") as server:
        figures["ps_cpu_ms"] = process_cpu_ms([*program, "ps", "-a"], env=server.environment())
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        home = Path(folder)
        with started([*program, "server", *flags], home):
            pass  # the database is made, and the bytecode kept
        figures["first_answer_cpu_ms"] = []
        for _ in range(STARTS):
            with started([*program, "server", *flags], home) as pid:
                figures["first_answer_cpu_ms"].append(cpu_of(pid) * 1000)
        with started([*program, "server", *flags], home) as pid:
            figures |= idle(pid)
    return figures


@contextmanager
def started(command: list[str], home: Path) -> Iterator[int]:
    """Its process, once it has answered a call."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    user = Server(home, env={"DSTACK_AGENT_RUNTIME": "process", "DSTACK_SERVER_ADMIN_TOKEN": TOKEN})
    process = subprocess.Popen(
        [*command, "--port", str(port)],
        cwd=ROOT,
        env=compiled(user.environment()),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until("its first answer", lambda: answers(port), every=0.01)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=PATIENCE)
        user.close()


def answers(port: int) -> bool:
    call = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/projects/list", b"{}", {"Authorization": f"Bearer {TOKEN}"}, method="POST"
    )
    call.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(call, timeout=PATIENCE) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


def idle(pid: int) -> Samples:
    time.sleep(SETTLING)
    before, begun = threads_cpu_of(pid), time.monotonic()
    time.sleep(SECONDS)
    share = (threads_cpu_of(pid) - before) / (time.monotonic() - begun) * 100
    return {"idle_core_percent": [share], "idle_rss_mb": [rss_mb(pid)]}


if __name__ == "__main__":
    main(record="--record" in sys.argv[1:])
