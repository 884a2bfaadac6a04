"""The guide to the SDK for Python: its blocks are one program, run where the wheel alone is installed, against a real
server; and what it prints is what the guide shows."""

from __future__ import annotations

import contextlib
import re
import subprocess
from pathlib import Path

from tests.harness.installed import install, wheel
from tests.harness.server import PATIENCE, ROOT, Server

GUIDE = ROOT / "docs" / "guides" / "python-sdk.md"
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
END = "--- the end of a block"


def test_the_guide_prints_what_it_shows(tmp_path: Path) -> None:
    programs = install(wheel(), tmp_path / "fresh", "server", "sdk")
    home = tmp_path / "home"
    home.mkdir()
    server = Server(home, env={"DSTACK_AGENT_RUNTIME": "process"}, command=(str(programs / "dstack"),))
    blocks = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    program = home / "program.py"
    program.write_text("".join(f"{code}print({END!r})\n" for code, _ in blocks))
    with contextlib.closing(server):
        server.start()
        command = [str(programs / "python"), "-P", str(program)]
        done = subprocess.run(
            command, cwd=home, env=server.environment(), capture_output=True, text=True, timeout=2 * PATIENCE
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(blocks) > 5 and done.stdout.split(f"{END}\n")[:-1] == [shown for _, shown in blocks]
