"""Two clients and one case: each runs it in the same folder, and what each sent is put side by side."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from tests.wire.corpus import ADDRESSES, Case
from tests.wire.far import SSH, Far
from tests.wire.keys import filled
from tests.wire.recorder import LAST, Recorder, Request

ROOT = Path(__file__).parents[2]
PEER = ROOT / ".venvs" / "peer" / "bin"
DRIVER = Path(__file__).with_name("forking.py")
CLOSED = "http://127.0.0.1:9"  # whatever looks outside meets a closed door at once
ALWAYS_THEN = {f"GIT_{who}_DATE": "1700000000 +0000" for who in ("AUTHOR", "COMMITTER")}  # so commits are the same
# As `git push -u` leaves it.
FOLLOWS = """[remote "origin"]
url = {address}
pushurl = {far}
fetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
remote = origin
merge = refs/heads/main
"""


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

    def said(self, command: str) -> Any:
        """What a case is about."""
        return self.repos() if command == "init" else self.body()

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
        return {"call": self.plan.call, "body": body, "repos": self.repos()}

    def repos(self) -> list[Any]:
        """All that was said of repositories, with patches as text."""
        calls = [request for request in self.requests if "/repos/" in request.path]
        return [
            [request.call, request.path.partition("?")[2], request.file_name, readable(request.body)]
            for request in calls
        ]


def readable(body: Any) -> Any:
    return body.decode("latin-1").splitlines() if isinstance(body, bytes) else body


def members(archive: bytes) -> list[tuple[str, str, int, str, str]]:
    """Name, kind, whether it can be run, link and content of everything in a tar."""
    found = []
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for entry in tar:
            held = tar.extractfile(entry) if entry.isreg() else None
            text = held.read().decode("latin-1") if held else ""
            found.append((entry.name, entry.type.decode(), entry.mode & 0o100, entry.linkname, text))
    return found


class Driver:
    """A process of a client's that forks for every command line."""

    def __init__(self, kind: str, env: dict[str, str]) -> None:
        python = PEER / "python" if kind == "peer" else Path(sys.executable)
        target = PEER / "dstack" if kind == "peer" else ROOT
        self.process = subprocess.Popen(
            [python, DRIVER, kind, target], cwd="/", env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, job: dict[str, Any]) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"stays": False, "more": False, **job}) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the client's process has ended"
        return int(json.loads(answer)["status"])

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


_SHARED: dict[tuple[int, str], Shared] = {}  # by the process that started it, for it doesn't survive a fork


class Shared(Driver):
    """One client for every test of this process whose commands run one after another: to start it and to import what
    its commands need takes seconds of CPU. It ends when this process does, which closes its standard input. What a
    terminal is like, the genuine client asks only as it starts, and where its home is, too: there it finds a link."""

    def __init__(self, kind: str) -> None:
        self._home = Path(tempfile.mkdtemp()) / "home"
        env = {"PATH": os.environ["PATH"], "HOME": str(self._home), "COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"}
        super().__init__(kind, env)
        Finalize(None, self.close, exitpriority=0)  # also at the end of a process that `multiprocessing` forked

    def run(self, job: dict[str, Any]) -> int:
        self._home.unlink(missing_ok=True)
        self._home.symlink_to(job["env"]["HOME"])
        return super().run({**job, "env": {**job["env"], "HOME": str(self._home)}})

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._home.parent)


def shared(kind: str) -> Shared:
    process = os.getpid(), kind
    if process not in _SHARED:
        _SHARED[process] = Shared(kind)
    return _SHARED[process]


class Client:
    """One of the two, with one process for all cases. Its `home` is a link to that of the case, for the genuine client
    looks where its home is only as it starts."""

    def __init__(self, kind: str, recorder: Recorder, far: Far, home: Path) -> None:
        self.kind, self.recorder, self.far, self.home = kind, recorder, far, home
        self.driver = Driver(kind, environment(self.home, "none"))

    def run(self, case: Case, folder: Path, *, stays: bool = False, more: bool = False) -> Sent:
        """The case in `folder`, which `lay_out` has filled; in a copy of the process, which runs the next one too if
        there are `more`, unless it `stays`."""
        token = f"{self.kind}-{case.name}"
        path = {"PATH": f"{folder}/bin:{os.environ['PATH']}"} if case.git else {}
        variables = {name: value.replace("{url}", self.recorder.url) for name, value in case.env.items()}
        self.home.unlink(missing_ok=True)
        self.home.symlink_to(folder / "home")
        job = {
            "argv": [arg.replace("{folder}", str(folder)) for arg in case.argv],
            "cwd": str(folder / "work"),
            "env": environment(self.home, token) | self.far.variables | path | variables,
            "output": str(folder / f"{self.kind}.txt"),
            "input": str(folder / "work" / case.path) if case.given == "-" else None,
            "stays": stays,
            "more": more,
        }
        self.recorder.expect(token, case)
        status = self.driver.run(job)
        output = (folder / f"{self.kind}.txt").read_text(encoding="utf-8", errors="replace")
        return Sent(status, output, self.recorder.taken(token))

    def close(self) -> None:
        self.driver.close()


@contextmanager
def client(kind: str, recorder: Recorder, far: Far, home: Path) -> Iterator[Client]:
    one = Client(kind, recorder, far, home)
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


def check_in(case: Case, folder: Path) -> None:
    """Makes the case's folder a checkout, and does with it what the case says."""
    tools = folder / "bin"
    tools.mkdir()
    for name in ("ssh", "ssh-keygen"):
        found = shutil.which(name)
        assert found, f"the tests need {name}"
        if name == "ssh":
            (tools / name).write_text(SSH.format(ssh=found, home=folder / "home", root=folder.parent), encoding="utf-8")
            (tools / name).chmod(0o755)
        else:  # the genuine client looks for it beside the other
            (tools / name).symlink_to(found)
    (folder / "home" / ".gitconfig").write_text(
        "[user]\nname = Me\nemail = me@example.com\n[maintenance]\nauto = false\n", encoding="utf-8"
    )
    work, far, env = folder / "work", folder / "app.git", environment(folder / "home", "") | ALWAYS_THEN
    empty = folder.parent / "empty"  # a repository without a commit
    if not empty.exists():
        subprocess.run(["git", "init", "-q", "-b", "main", "--template=", empty], env=env, check=True)
    shutil.copytree(empty / ".git", work / ".git")
    subprocess.run(["git", "add", "."], cwd=work, env=env, check=True)
    subprocess.run(["git", "commit", "-q", "-m", "first"], cwd=work, env=env, check=True)
    shutil.copytree(work / ".git", far, ignore=shutil.ignore_patterns("index", "logs"))
    alone = (far / "config").read_text()
    (far / "config").write_text(alone.replace("bare = false", "bare = true"))
    followed = work / ".git" / "refs" / "remotes" / "origin" / "main"
    followed.parent.mkdir(parents=True)
    shutil.copy(work / ".git" / "refs" / "heads" / "main", followed)
    address = ADDRESSES["{far}"].replace("{case}", case.name)
    (work / ".git" / "config").write_text(alone + FOLLOWS.format(far=far, address=address))
    if case.before:
        command = ["bash", "-ec", case.before.replace("{folder}", str(folder))]
        done = subprocess.run(command, cwd=work, env=env, capture_output=True)
        assert done.returncode == 0, f"{case}\n{done.stderr.decode()}"


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
        check_in(case, folder)
