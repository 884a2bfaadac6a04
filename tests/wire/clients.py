"""Two clients and one case: each runs it in the same folder, and what each sent is put side by side."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.wire.corpus import Case
from tests.wire.keys import filled
from tests.wire.recorder import LAST, Recorder, Request

ROOT = Path(__file__).parents[2]
PEER = ROOT / ".venvs" / "peer" / "bin"
DRIVER = Path(__file__).with_name("forking.py")
REPOSITORY = "https://127.0.0.1:9/me/app.git"
CLOSED = "http://127.0.0.1:9"  # whatever looks outside meets a closed door at once


@dataclass(frozen=True)
class Sent:
    """What one client did with a case."""

    status: int
    output: str
    requests: list[Request]

    @property
    def plan(self) -> Request | None:
        """The request that says what is wanted."""
        return next((request for request in self.requests if LAST.search(request.path)), None)

    @property
    def crashed(self) -> bool:
        return "Traceback (most recent call last)" in self.output or self.status < 0

    def body(self) -> Any:
        """The plan's body, with archives as what is in them instead of ids."""
        if self.plan is None:
            return None
        uploads = [request for request in self.requests if request.file_name is not None]
        body: Any = self.plan.body
        spec = body.get("run_spec") if isinstance(body, dict) else None
        if spec and spec.get("file_archives"):
            from tests.wire.recorder import archive_id

            held = {archive_id(upload.file_name or ""): members(upload.body) for upload in uploads}
            archives = [{"path": entry["path"], "holds": held[entry["id"]]} for entry in spec["file_archives"]]
            body = {**body, "run_spec": {**spec, "file_archives": archives}}
        return {"call": self.plan.call, "body": body}


def members(archive: bytes) -> list[tuple[str, str, int, str, str]]:
    """Name, kind, whether it can be run, link and content of everything in a tar."""
    found = []
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for entry in tar:
            held = tar.extractfile(entry) if entry.isreg() else None
            text = held.read().decode("latin-1") if held else ""
            found.append((entry.name, entry.type.decode(), entry.mode & 0o100, entry.linkname, text))
    return found


class Client:
    """One process of a client that forks for every command line."""

    def __init__(self, kind: str, recorder: Recorder) -> None:
        self.kind, self.recorder = kind, recorder
        python = PEER / "python" if kind == "peer" else Path(sys.executable)
        target = PEER / "dstack" if kind == "peer" else ROOT
        self.process = subprocess.Popen(
            [python, DRIVER, kind, target],
            cwd="/",
            env=environment(Path("/nonexistent"), "none"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, case: Case, folder: Path) -> Sent:
        """The case in `folder`, which `lay_out` has filled."""
        token = f"{self.kind}-{case.name}"
        path = {"PATH": f"{folder}/bin:{os.environ['PATH']}"} if case.git else {}
        job = {
            "argv": [word.replace("{folder}", str(folder)) for word in case.argv],
            "cwd": str(folder / "work"),
            "env": environment(folder / "home", token)
            | path
            | {name: value.replace("{url}", self.recorder.url) for name, value in case.env.items()},
            "output": str(folder / f"{self.kind}.txt"),
            "input": str(folder / "work" / case.path) if case.given == "-" else None,
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the {self.kind} client's process has ended"
        output = (folder / f"{self.kind}.txt").read_text(encoding="utf-8", errors="replace")
        return Sent(json.loads(answer)["status"], output, self.recorder.taken(token))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def client(kind: str, recorder: Recorder) -> Iterator[Client]:
    one = Client(kind, recorder)
    try:
        yield one
    finally:
        one.close()


def environment(home: Path, token: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "LANG": "C",  # any other sends the genuine client to look for translations of its flags, for 20 ms
        "PYTHONUTF8": "1",
        "HOME": str(home),
        "DSTACK_TOKEN": token,  # in place of the configured one: it tells the recorder whose request it is
        "http_proxy": CLOSED,
        "https_proxy": CLOSED,
        "no_proxy": "127.0.0.1,localhost",
        "COLUMNS": "200",
    }


def check_in(folder: Path) -> None:
    """Makes the case's folder a checkout of a repository that git finds on this machine, whatever its address says."""
    work, home = folder / "work", folder / "home"
    (home / ".gitconfig").write_text("[user]\nname = Me\nemail = me@example.com\n", encoding="utf-8")
    git = folder / "bin" / "git"  # a setting of the user's wouldn't do: the genuine client has git ignore them
    git.parent.mkdir()
    found = shutil.which("git")
    git.write_text(
        f'#!/bin/sh\nexec {found} -c url.file://{folder}/far.insteadOf={REPOSITORY} "$@"\n', encoding="utf-8"
    )
    git.chmod(0o755)
    for command in (
        f"init -q --bare -b main {folder}/far",
        "init -q -b main .",
        f"remote add origin {REPOSITORY}",
        "add .",
        "commit -q -m first",
        "push -q -u origin main",
    ):
        words = [str(git), *shlex.split(command)]
        subprocess.run(words, cwd=work, env=environment(home, ""), check=True, capture_output=True)


def lay_out(case: Case, folder: Path, url: str) -> None:
    """The folder and the home of a case."""
    project = {"name": "main", "url": url, "token": "token", "default": True}
    written = {"~/.dstack/config.yml": json.dumps({"projects": [project]}), case.path: case.file, **case.files}
    for name, text in written.items():
        path = folder / "home" / name[2:] if name.startswith("~/") else folder / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(filled(text).encode())
        path.chmod(0o755 if text.startswith("#!") else 0o600)
    if case.git:
        check_in(folder)
