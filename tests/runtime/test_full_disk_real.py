"""The disk of a running server fills up and empties again: nothing is lost, nothing that was refused is half done."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.measure import submit, task, wait_local_host
from tests.harness.gates import Gate, gate
from tests.harness.server import HttpError, Server, until
from tests.runtime.live import log_of, run_of, wait_for

LINES = 60
COUNT = "for i in $(seq {} {}); do echo line $i; done"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Server]:
    """A server whose home is a disk of a few megabytes of memory."""
    server = Server(tmp_path / "home", env={"DSTACK_AGENT_RUNTIME": "process"})
    server.home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "none", str(server.home)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {made.stderr.strip()}")
    try:
        yield server
    finally:
        server.close()
        subprocess.run(["umount", "--lazy", str(server.home)], check=False)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as ballast, pytest.raises(OSError, match="No space"):
        while True:
            ballast.write(b"x" * 4096)


def refusal(server: Server, path: str, body: object) -> str:
    with pytest.raises(HttpError) as refused:
        server.call(path, body)
    assert refused.value.status == 400
    return refused.value.body


@pytest.fixture
def full() -> Iterator[Gate]:
    with gate() as one:
        yield one


def test_a_full_disk_refuses_clearly_and_loses_nothing(small: Server, full: Gate) -> None:
    wait_local_host(small.start())
    half = LINES // 2
    submit(small, task("talks", COUNT.format(1, half), full.command, COUNT.format(half + 1, LINES)))
    wait_for(small, "talks", "running")
    submit(small, task("waits", "echo waited"))
    ballast = small.home / "ballast"
    fill(ballast)

    error = refusal(small, "/api/project/main/runs/stop", {"runs_names": ["waits"], "abort": False})
    assert "full" in error and "nothing was changed" in error and "Make room" in error
    with pytest.raises(HttpError, match="Make room"):
        submit(small, task("late", "echo late"))
    secret = {"name": "token", "value": "v" * 4000}
    assert "Make room" in refusal(small, "/api/project/main/secrets/create_or_update", secret)
    assert run_of(small, "waits")["status"] == "submitted", "what can be read is still read"
    full.open()
    assert until("the log to tell it", lambda: any("Make room" in line for line in small.lines))

    os.truncate(ballast, 0)
    assert wait_for(small, "talks", "done", "failed")["status"] == "done"
    assert log_of(small, "talks").split() == [text for n in range(1, LINES + 1) for text in ("line", str(n))]
    assert wait_for(small, "waits", "done", "failed")["status"] == "done"
    assert [run["run_spec"]["run_name"] for run in small.call("/api/runs/list", {})] == ["waits", "talks"]
    assert small.call("/api/project/main/secrets/list") == []
    submit(small, task("late", "echo late"))
    assert wait_for(small, "late", "done", "failed")["status"] == "done"


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_starts_on_a_full_disk_shows_what_it_has(small: Server, end: signal.Signals) -> None:
    """Killed, it leaves the database's shared memory behind; else there is no room to make it again."""
    wait_local_host(small.start())
    submit(small, task("before", "echo said"))
    wait_for(small, "before", "done")
    submit(small, task("long", "sleep 600"))
    wait_for(small, "long", "running")
    small.stop(end)
    ballast = small.home / "ballast"
    fill(ballast)

    small.start()
    assert run_of(small, "before")["status"] == "done" and log_of(small, "before").split() == ["said"]
    stop = "/api/project/main/runs/stop", {"runs_names": ["long"], "abort": True}
    assert "Make room" in refusal(small, *stop) and run_of(small, "long")["status"] == "running"
    assert "Traceback" not in "\n".join(small.lines), "the disk is to blame, not the code"

    os.truncate(ballast, 0)
    small.call(*stop)
    wait_for(small, "long", "terminated")
