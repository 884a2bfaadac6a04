"""What a session takes on before its command starts. The rest is in `test_sessions_real`."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from tests.harness.server import ROOT

TAKES_ON = "import json, sys; from chalicelib.agent.session_command import take_on; take_on(json.loads(sys.argv[1]))"


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root begins sessions of others")
def test_a_terminal_belongs_to_whoever_has_the_session() -> None:
    """Or none of its programs could open it."""
    ours, theirs = pty.openpty()
    entry = {"uid": 4711, "gid": 4712, "confined": True, "groups": [4712], "own_user": True}
    subprocess.run([sys.executable, "-c", TAKES_ON, json.dumps(entry)], stdin=theirs, cwd=ROOT, check=True)
    found = os.fstat(theirs)
    for fd in (ours, theirs):
        os.close(fd)
    assert (found.st_uid, found.st_gid) == (4711, 4712)
