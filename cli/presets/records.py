"""The folder of a preset, `~/.dstack/presets/<id>`: whoever writes it and whoever reads it may be two processes.

The worker holds a lock on `worker.lock` while it lives; that the lock is free says that nobody works on the preset.
`stop` and `keep-service` are files whose presence is the request. Each run is in `runs.jsonl` before it is submitted,
and then with its id, so that one that a worker left behind is found and stopped.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chalicelib.errors import NotFound, Refused

if TYPE_CHECKING:
    from chalicelib import contract

SESSION, LOCK = "session.json", "worker.lock"
STOP, KEEP = "stop", "keep-service"
PROGRESS, TRACE, RUNS, LOG = "progress.jsonl", "trace.jsonl", "runs.jsonl", "agent.log"
GLANCES, GLANCE_SECONDS = 5, 0.02  # tries to take a lock that somebody only looks at
UNFINISHED = ("creating", "interrupted")


@dataclass(frozen=True)
class Folder:
    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    def read(self) -> contract.Preset:
        """The preset with its trials. One that nobody works on any more is interrupted."""
        busy = self.is_busy()  # before the record is read, since it is written before the lock is let go
        try:
            found: contract.Preset = json.loads((self.path / SESSION).read_text(encoding="utf-8"))
            found["trials"] = [json.loads(path.read_text(encoding="utf-8")) for path in self._trials()]
        except (OSError, ValueError) as error:
            raise Refused(
                f"The preset in {self.path} can't be read: {error}.", hint="Delete its folder, or restore it."
            ) from error
        found["cost"] = round(sum(trial["cost"] for trial in found["trials"]), 4)
        if found["status"] == "creating" and not busy:
            found["status"] = "interrupted"
            found["reason"] = f"Nobody works on it any more. `dstack preset resume {self.id}` goes on."
        return found

    def write(self, preset: contract.Preset) -> None:
        self._replace(self.path / SESSION, {**preset, "trials": []})

    def write_trial(self, trial: contract.PresetTrial) -> None:
        path = self.path / "trials" / str(trial["number"]) / "trial.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._replace(path, trial)

    def _trials(self) -> list[Path]:
        found = (self.path / "trials").glob("*/trial.json")
        return sorted((path for path in found if path.parent.name.isdigit()), key=lambda path: int(path.parent.name))

    def _replace(self, path: Path, document: object) -> None:
        """Readers see the old document or the new one."""
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(document, indent=2, ensure_ascii=False), encoding="utf-8", errors="replace")
        fresh.replace(path)

    def append(self, name: str, now: float, **entry: Any) -> None:
        line = json.dumps({"time": iso(now), **entry}, ensure_ascii=False)
        with (self.path / name).open("a", encoding="utf-8", errors="replace") as opened:
            opened.write(line + "\n")

    def lines(self, name: str, skip: int = 0) -> list[dict[str, Any]]:
        """The whole lines of a file, but for the first `skip`."""
        try:
            text = (self.path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.split("\n")[skip:-1]]

    # --- requests to the worker ---

    def request(self, name: str) -> None:
        (self.path / name).touch()

    def withdraw(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def is_requested(self, name: str) -> bool:
        return (self.path / name).exists()

    # --- who works on it ---

    def is_busy(self) -> bool:
        try:
            with (self.path / LOCK).open("a") as opened:
                fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)  # held for a moment only: see `taken`
                return False
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True

    @contextmanager
    def taken(self) -> Iterator[int]:
        """Holds the lock; a process that inherits the descriptor goes on holding it."""
        with (self.path / LOCK).open("a") as opened:
            for left in range(GLANCES, -1, -1):
                try:
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not left:
                        hint = f"Follow it: `dstack preset logs {self.id} -f`."
                        raise Refused(f"Preset {self.id} is being created already.", hint=hint) from None
                time.sleep(GLANCE_SECONDS)  # somebody may only be looking
            yield opened.fileno()

    def delete(self) -> None:
        shutil.rmtree(self.path)


def root(home: Path) -> Path:
    return home / ".dstack" / "presets"


def created(home: Path, preset: contract.Preset) -> Folder:
    folder = Folder(root(home) / preset["id"])
    folder.path.mkdir(mode=0o700, parents=True)
    folder.write(preset)
    return folder


def every(home: Path) -> list[Folder]:
    """The newest last. A folder that another client has made isn't ours to read."""
    found = [Folder(path.parent) for path in root(home).glob(f"*/{SESSION}")]
    ours = [(folder, _first(folder)) for folder in found]
    return [folder for folder, at in sorted(ours, key=lambda pair: pair[1]) if at]


def _first(folder: Folder) -> str:
    """When it was submitted; empty for a record of another client."""
    try:
        document = json.loads((folder.path / SESSION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    ours = isinstance(document, dict) and document.get("id") == folder.id and "trials" in document
    return str(document.get("submitted_at") or "") if ours else ""


def find(home: Path, wanted: str) -> Folder:
    """By id, or else the newest of that name."""
    folders = every(home)
    named = [folder for folder in folders if wanted in (folder.id, folder.read()["name"])]
    found = [folder for folder in named if folder.id == wanted] or named
    if not found:
        raise NotFound(f"There is no preset {wanted} on this machine.", hint="See them all with `dstack preset -a`.")
    return found[-1]


def iso(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
