"""A copy is a process of its own, which a test can't tell from one that began as a user's does."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.harness import forks
from tests.harness.server import Server

SECONDS = 120


def environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "MARK": "of this test"}


def test_output_status_and_input_are_those_of_the_command(tmp_path: Path) -> None:
    status, said = forks.run(["--version"], tmp_path, environment(tmp_path), seconds=SECONDS)
    assert status == 0 and "compatible with dstack" in said
    status, said = forks.run(["nonsense"], tmp_path, environment(tmp_path), seconds=SECONDS)
    assert status == 2 and "nonsense" in said
    words = ["project", "add", "--name", "main", "--url", "http://127.0.0.1:9", "--token", "-"]
    _, said = forks.run(words, tmp_path, environment(tmp_path), input="\n", seconds=SECONDS)
    assert "token" in said.lower()


def test_a_server_is_shown_as_any_other_and_ends_by_its_signals(tmp_path: Path) -> None:
    before = forks.spent()
    server = Server(tmp_path, flags=("--no-local-fleet",), env={"MARK": "of this test"})
    try:
        process = server.start().process
        assert isinstance(process, forks.Fork) and process.poll() is None
        there = Path("/proc", str(process.pid))
        words = (there / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        assert words[:4] == [os.fsencode(sys.executable), b"-m", b"cli.main", b"server"]
        assert b"MARK=of this test" in (there / "environ").read_bytes().split(b"\0")
        assert b"PYTEST_CURRENT_TEST" not in (there / "environ").read_bytes()
        assert os.getsid(process.pid) == process.pid
        assert (there / "cwd").readlink() == forks.ROOT
        assert server.stop() == 0
        assert forks.spent() > before
        server.start()
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
    finally:
        server.close()
