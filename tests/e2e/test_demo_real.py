"""`make demo` has a truthful exit status, and leaves nothing behind however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo import tour
from tests.harness.server import ROOT, Server, processes_of, until

HELLO = (ROOT / "examples" / "hello.dstack.yml").read_text()


def demo(folder: Path, example: str, **variables: str) -> subprocess.Popen[str]:
    (folder / "example.dstack.yml").write_text(example)
    environment = {**os.environ, "TMPDIR": str(folder), "DSTACK_AGENT_RUNTIME": "process", **variables}
    command = [sys.executable, "-m", "examples.demo", str(folder / "example.dstack.yml")]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def nothing_left(folder: Path) -> bool:
    return not processes_of(folder) and [path.name for path in folder.iterdir()] == ["example.dstack.yml"]


def test_the_task_runs(tmp_path: Path) -> None:
    process = demo(tmp_path, HELLO)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    for text in ("Hello from hello on ", "step 3", "exited (0)", "terminating → done"):
        assert text in output
    until("all to be gone", lambda: nothing_left(tmp_path))


@pytest.mark.parametrize(
    ("example", "variables"),
    [
        (HELLO.replace("step $i", "oops; exit 3"), {}),
        (HELLO, {"DSTACK_SERVER_LOG_LEVEL": "loud"}),
    ],
    ids=["fails", "no server"],
)
def test_a_task_that_didnt_really_run_is_a_failure(tmp_path: Path, example: str, variables: dict[str, str]) -> None:
    process = demo(tmp_path, example, **variables)
    output, _ = process.communicate()
    assert process.returncode == 1, output
    until("all to be gone", lambda: nothing_left(tmp_path))


def test_whatever_it_didnt_see_is_missing(tmp_path: Path) -> None:
    """Of its tour, whose answer is the demo's: on one server."""
    server, example = Server(tmp_path, env={"DSTACK_AGENT_RUNTIME": "process"}), tmp_path / "example.dstack.yml"
    with contextlib.closing(server):
        server.start("-y")
        env = {**server.environment(), "PYTHONPATH": str(ROOT)}
        for text, missing in (
            (HELLO.replace("Hello from", "Goodbye from"), "`dstack apply` didn't show “Hello from hello on ”"),
            (HELLO.replace("cpu: 1..", "cpu: 4096.."), "`dstack apply` ended with status 1"),
        ):
            example.write_text(text)
            assert tour(example, env) == missing


def test_ended_in_the_middle_it_takes_everything_with_it(tmp_path: Path) -> None:
    process = demo(tmp_path, HELLO.replace("sleep 0.3", "sleep 600"))
    assert process.stdout is not None
    until("the first step", lambda: "step 1" in process.stdout.readline(), every=0)  # type: ignore[union-attr]
    process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=120)
    except subprocess.TimeoutExpired:  # Python drops what a handler raises while a finalizer runs: a person asks again
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 1
    until("all to be gone", lambda: nothing_left(tmp_path))
