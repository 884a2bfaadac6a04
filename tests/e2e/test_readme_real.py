"""The README's commands, typed as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.harness.server import PATIENCE, ROOT, Server


def commands() -> list[str]:
    """The block that shows the tour by hand, without `make install`: that is how this test came to run."""
    blocks = re.findall(r"```shell\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (by_hand,) = [block for block in blocks if "make install" in block]
    lines: list[str] = by_hand.splitlines()
    assert lines[0] == "make install"
    return lines[1:]


def test_the_tour_by_hand(tmp_path: Path) -> None:
    user = Server(tmp_path / "home", env={"DSTACK_SERVER_PORT": "0", "DSTACK_AGENT_RUNTIME": "process"})
    user.home.mkdir()
    environment = user.environment()
    server: subprocess.Popen[str] | None = None
    outputs: dict[str, str] = {}
    try:
        for line in commands():
            command = line.replace(".venv/bin/dstack", f"{Path(sys.executable).parent}/dstack")
            if command.endswith(" &"):
                server = subprocess.Popen(
                    command[:-2].split(), cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
                )
                assert server.stdout is not None
                assert any("is the default" in printed for printed in iter(server.stdout.readline, ""))
                continue
            done = subprocess.run(
                command.split(), cwd=ROOT, env=environment, capture_output=True, text=True, input="y\n"
            )
            assert done.returncode == 0, f"{line}:\n{done.stdout}{done.stderr}"
            outputs[line.split()[1]] = done.stdout + done.stderr
    finally:
        if server is not None:
            server.terminate()
            server.wait(timeout=PATIENCE)
        user.close()
    assert "Hello from hello" in outputs["apply"]
    assert "exited (0)" in outputs["ps"]
    assert "hello" in outputs["event"]
