"""A copy is a process of its own, which a test can't tell from one that began as a user's does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import forks
from tests.harness.installed import program
from tests.harness.server import ROOT, Server

SECONDS = 120
OURS = Path("/proc/self/ns/net")


def environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home)}


HELD = "ip link set lo up && echo up && exec cat"


@pytest.fixture
def apart() -> Iterator[Path]:
    """A network of its own."""
    holder = ["unshare", "--net", "sh", "-c", HELD]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as held:
        assert held.stdout is not None
        if not held.stdout.readline():
            pytest.skip("whoever runs this may not make a network")
        yield Path(f"/proc/{held.pid}/ns/net")


SAID = [
    ["--version"],
    ["ps", "--help"],
    ["nonsense"],
    ["ps"],
    ["apply", "-f", "odd.dstack.yml", "-y"],
    ["project", "add", "--name", "main", "--url", "http://127.0.0.1:9", "--token", "-"],
]


@pytest.mark.parametrize("installed", [False, True])
def test_output_errors_status_and_input_are_those_of_a_real_start(installed: bool, tmp_path: Path) -> None:
    env = {**environment(tmp_path), "COLUMNS": "60", **({} if installed else {"PYTHONPATH": str(ROOT)})}
    command = [str(program())] if installed else [sys.executable, "-m", "cli.main"]
    place = forks.Place(program() if installed else None)
    (tmp_path / "odd.dstack.yml").write_text("type: task\ncommand: [ls]\n")
    seen = set()
    for words in SAID:
        real = subprocess.run([*command, *words], cwd=tmp_path, env=env, input="\n", capture_output=True, text=True)
        status, said = forks.run(words, tmp_path, env, place, input="\n", seconds=SECONDS)
        assert (status, said) == (real.returncode, real.stdout + real.stderr)
        if words[0] != "project":
            assert forks.streams(words, tmp_path, env, place, seconds=SECONDS) == (status, real.stdout, real.stderr)
        seen.add(status)
    assert seen == {0, 1, 2}


def shown(process: subprocess.Popen[str] | forks.Fork, home: Path) -> dict[str, Any]:
    """What anybody can see of a process. Its session and its end are its own."""
    there = Path("/proc", str(process.pid))
    environ = (there / "environ").read_bytes().rstrip(b"\0").split(b"\0")
    return {
        "line": (there / "cmdline").read_bytes().rstrip(b"\0").replace(str(home).encode(), b"~"),
        "program": (there / "exe").readlink(),
        "folder": str((there / "cwd").readlink()).replace(str(home), "~"),
        "network": (there / "ns" / "net").readlink(),
        "environment": sorted(line.replace(str(home).encode(), b"~") for line in environ),
        "leads": os.getsid(process.pid) == process.pid,
    }


@pytest.mark.parametrize(
    ("where", "number"),
    [
        ("checkout", signal.SIGINT),
        ("checkout", signal.SIGKILL),
        ("installed", signal.SIGINT),
        ("apart", signal.SIGTERM),
    ],
)
def test_a_server_is_seen_as_one_that_was_really_started_and_ends_like_it(
    where: str, number: signal.Signals, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    network = request.getfixturevalue("apart") if where == "apart" else None
    command = (str(program()),) if where == "installed" else ()
    seen = []
    for fork in (True, False):
        home = tmp_path / str(fork)
        home.mkdir()
        server = Server(home, ("--no-local-fleet",), network=network, command=command, fork=fork)
        try:
            process = server.start().process
            assert process is not None and isinstance(process, forks.Fork) == fork
            screen = shown(process, home)
            lines = [re.sub(r":\d+", ":", line.replace(str(home), "~")) for line in server.lines]
            seen.append((screen, lines, server.cli("ps"), server.stop(number)))
        finally:
            server.close()
    assert seen[0] == seen[1]
    assert (seen[0][0]["network"] != OURS.readlink()) == (where == "apart")


def test_its_cpu_is_counted_at_its_end(tmp_path: Path) -> None:
    for place in (forks.Place(), forks.Place(program())):
        before = forks.spent()
        assert forks.run(["--version"], tmp_path, environment(tmp_path), place, seconds=SECONDS)[0] == 0
        assert forks.spent() > before


def test_what_python_reads_as_it_starts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="PYTHONUNBUFFERED"):
        forks.run(["--version"], tmp_path, {**environment(tmp_path), "PYTHONUNBUFFERED": "1"}, seconds=SECONDS)
