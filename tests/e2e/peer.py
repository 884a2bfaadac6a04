"""The genuine client, unmodified, in its own virtual environment: its entry point, one process per command, and its
Python API."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness.server import ROOT, Server
from tests.wire.clients import shared

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

    def run(self, *args: str, expect: int = 0, input: str = "", cwd: Path | None = None) -> Screen:
        """One command, a copy of a process that has the client's modules loaded; its exit status must be `expect`, and
        no traceback may show."""
        return self._copy(list(args), expect=expect, input=input, cwd=cwd)

    def _copy(
        self, args: list[str], *, expect: int = 0, input: str = "", cwd: Path | None = None, **more: str
    ) -> Screen:
        input_file, shown = self.home.parent / "input", self.home.parent / "output"
        input_file.write_text(input)
        job = {
            "argv": args,
            "cwd": str(cwd or self.home),
            "env": self.environment(),
            "input": str(input_file),
            "output": str(shown),
            **more,
        }
        status = shared("peer").run(job)
        text = shown.read_text()
        assert "Traceback" not in text, text
        assert status == expect, f"dstack {' '.join(args)} ended with {status}:\n{text}"
        return Screen(status, text)

    def json(self, *args: str) -> Any:
        return json.loads(self.run(*args).text)

    def python(self, script: Path, *args: str, token: str = "") -> Any:
        """A script in the client's own Python; its last line of output as JSON. `token`: in place of the admin's."""
        called = [self.server.url, token or self.server.token, *args]
        return json.loads(self._copy(called, script=str(script)).text.splitlines()[-1])


def joined(server: Server, home: Path, token: str = "") -> Peer:
    """A client whose project is the server's `main`. `token`: in place of the admin's."""
    if not (VENV / "bin" / "dstack").exists():
        pytest.skip("the genuine client isn't installed here; `make test` installs it into .venvs/peer")
    home.mkdir()
    peer = Peer(server, home)
    peer.run("project", "add", "--name", "main", "--url", server.url, "--token", token or server.token, "-y")
    return peer
