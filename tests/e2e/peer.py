"""The genuine client, unmodified, in a virtual environment of its own, as a black box."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness.server import PATIENCE, ROOT, Server

VENV = ROOT / ".venvs" / "peer"


@dataclass(frozen=True)
class Screen:
    status: int
    text: str

    def rows(self) -> list[list[str]]:
        """Cells of a plain table, by runs of two blanks or more; the header first."""
        import re

        return [re.split(r"\s{2,}", line.strip()) for line in self.text.splitlines() if line.strip()]


@dataclass
class Peer:
    server: Server
    home: Path

    def environment(self) -> dict[str, str]:
        return {**self.server.environment(), "HOME": str(self.home), "COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"}

    def run(self, *args: str, expect: int = 0, input: str = "") -> Screen:
        """One command; its exit status must be `expect`, and no traceback may show."""
        command = [str(VENV / "bin" / "dstack"), *args]
        done = subprocess.run(
            command,
            cwd=self.home,
            env=self.environment(),
            capture_output=True,
            text=True,
            input=input,
            timeout=2 * PATIENCE,
        )
        text = done.stdout + done.stderr
        assert "Traceback" not in text, text
        assert done.returncode == expect, f"dstack {' '.join(args)} ended with {done.returncode}:\n{text}"
        return Screen(done.returncode, text)

    def json(self, *args: str) -> Any:
        return json.loads(self.run(*args).text)

    def python(self, script: Path, *args: str) -> Any:
        """A script in the client's own Python; its last line of output as JSON."""
        command = [str(VENV / "bin" / "python"), str(script), self.server.url, self.server.token, *args]
        done = subprocess.run(
            command, cwd=self.home, env=self.environment(), capture_output=True, text=True, timeout=2 * PATIENCE
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])


def make_peer(server: Server, home: Path) -> Peer:
    if not (VENV / "bin" / "dstack").exists():
        pytest.skip("the genuine client isn't installed here; `make test` installs it into .venvs/peer")
    home.mkdir()
    peer = Peer(server, home)
    peer.run("project", "add", "--name", "main", "--url", server.url, "--token", server.token, "-y")
    return peer
