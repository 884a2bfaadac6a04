"""The genuine client, unmodified, in its own virtual environment: its entry point, one process per command."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness.server import PATIENCE, ROOT, Server
from tests.wire.clients import Driver

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
    _driver: Driver | None = None  # has the client's modules loaded, and forks for each command

    def environment(self) -> dict[str, str]:
        return {**self.server.environment(), "HOME": str(self.home), "COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"}

    def run(self, *args: str, expect: int = 0, input: str = "") -> Screen:
        """One command; its exit status must be `expect`, and no traceback may show."""
        if self._driver is None:
            self._driver = Driver("peer", self.environment())
        input_file, shown = self.home.parent / "input", self.home.parent / "output"
        input_file.write_text(input)
        job = {
            "argv": args,
            "cwd": str(self.home),
            "env": self.environment(),
            "input": str(input_file),
            "output": str(shown),
        }
        status = self._driver.run(job)
        text = shown.read_text()
        assert "Traceback" not in text, text
        assert status == expect, f"dstack {' '.join(args)} ended with {status}:\n{text}"
        return Screen(status, text)

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()

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


@contextmanager
def running(server: Server, home: Path) -> Iterator[Peer]:
    """A client whose project is the server's `main`, added by a process of its own, as a user's would be."""
    program = VENV / "bin" / "dstack"
    if not program.exists():
        pytest.skip("the genuine client isn't installed here; `make test` installs it into .venvs/peer")
    home.mkdir()
    peer = Peer(server, home)
    arguments = ["project", "add", "--name", "main", "--url", server.url, "--token", server.token, "-y"]
    done = subprocess.run(
        [program, *arguments], cwd=home, env=peer.environment(), capture_output=True, text=True, timeout=2 * PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with closing(peer):
        yield peer
