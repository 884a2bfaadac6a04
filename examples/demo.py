"""`make demo`: a task runs through a real control plane, from nothing to nothing.

Starts the embedded server on a free port with a temporary home, applies `hello.dstack.yml` with the project's own CLI,
shows its logs as they come, then the run and its history, and ends everything it started. The exit status is the truth:
0 only if the task ran, said what it should, and nothing was left behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "hello.dstack.yml"


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="dstack-demo-") as folder:
        home = Path(folder)
        environment = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT), "DSTACK_SERVER_ADMIN_TOKEN": ""}
        server = start(home, environment)
        try:
            return tour(environment)
        finally:
            stop(server)


def start(home: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    say("dstack server")
    command = [
        sys.executable,
        "-m",
        "cli.main",
        "server",
        "--port",
        "0",
        "--data-dir",
        str(home / "server"),
        "--stop-jobs",
    ]
    server = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    for line in server.stdout:
        print(f"  {line}" if "token" not in line else "  The admin token is ******\n", end="")
        if line.startswith("Project"):
            return server
    raise SystemExit(f"The server ended with status {server.wait()} before it came up.")


def tour(environment: dict[str, str]) -> int:
    applied = show(["apply", "-y", "-f", str(EXAMPLE)], environment)
    if applied.returncode != 0 or "Hello" not in applied.stdout:
        print("The task did not run as it should have.", file=sys.stderr)
        return 1
    for command in (["ps", "-a"], ["event"]):
        if show(command, environment).returncode != 0:
            return 1
    return 0


def show(args: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run one command and pass its output on while it comes."""
    say("dstack " + " ".join(Path(a).name if a.endswith(".yml") else a for a in args))
    begun, kept = time.monotonic(), []
    command = [sys.executable, "-u", "-m", "cli.main", *args]
    with subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            kept.append(line)
            print(f"  {line}", end="", flush=True)
    print(f"  ({time.monotonic() - begun:.1f} s)")
    return subprocess.CompletedProcess(command, process.returncode, "".join(kept))


def say(command: str) -> None:
    print(f"\n$ {command}", flush=True)


def stop(server: subprocess.Popen[str]) -> None:
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(timeout=20)
    except subprocess.TimeoutExpired:
        server.kill()
        raise SystemExit("The server did not stop in 20 seconds.") from None


if __name__ == "__main__":
    sys.exit(main())
