"""Gates for jobs: a command waits at one until the test opens it, so that nothing depends on how fast either is."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Gate:
    folder: Path

    @property
    def command(self) -> str:
        return f"until [ -e {self.folder}/open ]; do sleep 0.1; done"

    def open(self) -> None:
        (self.folder / "open").touch()


@contextmanager
def gate() -> Iterator[Gate]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # jobs have users of their own
        yield Gate(Path(folder))
