"""What a session takes on before its command starts. The rest is in `test_sessions_real`."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from chalicelib.agent.kernel.tasks import TaskFolder, read_json
from chalicelib.agent.runtimes.accounts import TaskAccount
from chalicelib.agent.runtimes.session_rights import admit, bound_files_of
from tests.harness.server import ROOT

TAKES_ON = (
    "import json, sys; from chalicelib.agent.runtimes.session_rights import take_on; take_on(json.loads(sys.argv[1]))"
)


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root begins sessions of others")
def test_a_terminal_belongs_to_whoever_has_the_session() -> None:
    """Or none of its programs could open it."""
    near, far = pty.openpty()
    entry = {"uid": 4711, "gid": 4712, "confined": True, "groups": [4712], "own_user": True}
    subprocess.run([sys.executable, "-c", TAKES_ON, json.dumps(entry)], stdin=far, cwd=ROOT, check=True)
    found = os.fstat(far)
    for fd in (near, far):
        os.close(fd)
    assert (found.st_uid, found.st_gid) == (4711, 4712)


def test_a_job_that_an_earlier_agent_started_has_sessions(tmp_path: Path) -> None:
    """Its supervisor runs on when the agent is replaced, and wrote down what that one read."""
    users = str(tmp_path / "users")
    account = TaskAccount(None)
    folder = TaskFolder(str(tmp_path), "t")
    folder.create({})
    admit(folder, account, {}, "/", {"/etc/group": "groups"})
    new = read_json(f"{folder.path}/session.json") or {}
    assert bound_files_of(new) == {"/etc/group": "groups"}
    old = {name: value for name, value in new.items() if name != "seen"}
    assert bound_files_of({**old, "users": ""}) == {}
    assert bound_files_of({**old, "users": users}) == {os.path.realpath("/etc/passwd"): users}
