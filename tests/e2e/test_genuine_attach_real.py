"""The genuine client attaches to jobs: it logs in to them over SSH, and reads their output there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.debian import NotHere, install

ROOT = Path(__file__).parents[2]
PATIENCE = 600  # seconds


@pytest.fixture(scope="module")
def network() -> Iterator[str]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    needed = {"sshd": "openssh-server", "ssh": "openssh-client", "ip": "iproute2", "script": "bsdutils"}
    try:
        if not all(shutil.which(program, path=path) for program in needed):
            install(*needed.values())
    except NotHere as reason:
        pytest.skip(str(reason))
    name = f"dstack-{uuid.uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


@pytest.fixture(scope="module")
def seen(network: str) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="dstack-") as folder:
        Path(folder).chmod(0o711)  # jobs have users of their own, and wait for files in it
        argv = [
            "nsenter",
            f"--net=/run/netns/{network}",
            "--",
            sys.executable,
            "-m",
            "tests.e2e.attach_journey",
            folder,
        ]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        yield json.loads(done.stdout.splitlines()[-1])


def test_an_attached_apply_shows_the_log_and_ends_as_the_job(seen: dict[str, Any]) -> None:
    assert seen["attached"]["status"] == 1
    lines = [line for line in seen["attached"]["shown"].splitlines() if line]
    assert lines[:4] == ["first line", "last line", "exit", "Exited (7)"], lines  # a shell on a terminal says `exit`


def test_attach_leaves_a_way_into_the_job(seen: dict[str, Any]) -> None:
    assert seen["logged_in"]["ssh"] == [3, "held\n"]
    assert seen["logged_in"]["status"] == 0
    assert seen["key"]["same"]


def test_a_job_that_was_over_before_has_shown_its_log(seen: dict[str, Any]) -> None:
    assert seen["short"] == {"status": 0, "shown": True}
