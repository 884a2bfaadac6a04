"""`make demo`: a task runs through a real control plane, from nothing to nothing.

Starts the embedded server on a free port with a temporary home, applies `hello.dstack.yml` with the project's own CLI,
shows its logs as they come, then the run and its history, and ends everything it started. The exit status is 0 only if
the task ran, printed what it should, and left nothing behind. An argument names another configuration file.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "hello.dstack.yml"
PATIENCE = 900  # seconds for everything: if jobs run in Docker, an image may have to be pulled first
LEAVING = 20  # seconds for the processes of a server that has ended


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, give_up)
    signal.alarm(PATIENCE)
    example = Path(sys.argv[1]) if len(sys.argv) > 1 else EXAMPLE
    with tempfile.TemporaryDirectory(prefix="dstack-demo-") as folder:
        home = Path(folder)
        environment = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT), "DSTACK_SERVER_ADMIN_TOKEN": ""}
        say("dstack server")
        command = [sys.executable, "-m", "cli.main", "server", "--port", "0", "--data-dir", str(home / "server")]
        server = subprocess.Popen(
            [*command, "--stop-jobs"], env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        try:
            wait_until_up(server)
            failed = tour(example, environment)
        finally:
            left = stop(server, home)
        if failed or left:
            print(f"The task did not run as it should have: {failed or left}.", file=sys.stderr)
        return 1 if failed or left else 0


def give_up(number: int, frame: object) -> None:
    raise SystemExit(f"Ended by {signal.Signals(number).name}.")


def wait_until_up(server: subprocess.Popen[str]) -> None:
    assert server.stdout is not None
    for line in server.stdout:
        print(f"  {line}" if "token" not in line else "  The admin token is ******\n", end="", flush=True)
        if line.startswith("Project"):
            return
    raise SystemExit(f"The server ended with status {server.wait()} before it came up.")


def tour(example: Path, environment: dict[str, str]) -> str:
    """What was missing, if anything."""
    for command, expected in (
        (["apply", "-y", "-f", str(example)], ("Hello from hello on ", "step 3")),
        (["ps", "-a"], ("hello", "exited (0)")),
        (["event"], ("terminating → done",)),
    ):
        shown = show(command, environment)
        if shown.returncode != 0:
            return f"`dstack {command[0]}` ended with status {shown.returncode}"
        for text in expected:
            if text not in shown.stdout:
                return f"`dstack {command[0]}` didn't show “{text}”"
    return ""


def show(args: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run one command and print its output as it comes."""
    say("dstack " + " ".join(Path(a).name if a.endswith(".yml") else a for a in args))
    begun, lines = time.monotonic(), []
    command = [sys.executable, "-u", "-m", "cli.main", *args]
    with subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                print(f"  {line}", end="", flush=True)
        except BaseException:
            process.kill()  # or leaving would wait for it
            raise
    print(f"  ({time.monotonic() - begun:.1f} s)")
    return subprocess.CompletedProcess(command, process.returncode, "".join(lines))


def say(command: str) -> None:
    print(f"\n$ {command}", flush=True)


def stop(server: subprocess.Popen[str], home: Path) -> str:
    """Stop the server; whatever it left behind is ended too, and named."""
    server.send_signal(signal.SIGTERM)
    try:
        status = server.wait(timeout=60)
    except subprocess.TimeoutExpired:
        server.kill()
        status = server.wait()
    until = time.monotonic() + LEAVING
    while (left := processes_of(home)) and time.monotonic() < until:  # they end with it, but not before it
        time.sleep(0.1)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if left:
        return f"the processes {left} outlived the server"
    return f"the server ended with status {status}" if status else ""


def processes_of(home: Path) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if str(home).encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


if __name__ == "__main__":
    sys.exit(main())
