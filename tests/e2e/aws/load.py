"""Who works with a control plane while it moves: somebody who submits runs, and somebody who follows a job's log. Both
call an address, and the other one where they are refused, as people do who are told the new address."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

from tests.e2e.aws.front import NO_ANSWER
from tests.e2e.onprem.lab import SMALL
from tests.harness.server import HttpError, Server

EVERY = 15.0  # seconds between two runs of the load
LINES = [*map(str, range(1, 41))]
WORD = "as it was"
REFUSED = (400, 503, NO_ANSWER)  # by a place that doesn't decide, or whose functions are being replaced


class Load:
    def __init__(self, project: str, token: str, urls: Sequence[str], marks: Path) -> None:
        self.project, self.marks = project, marks
        self._places = [Server(marks, url=url, token=token) for url in urls]
        self.taken: list[str] = []
        self.followed = b""
        self._token: str | None = None  # of the page that the follower is at,
        self._read = 0  # and how many bytes of it it has read
        self._over = threading.Event()
        self.errors: list[str] = []

    def call(self, path: str, body: Any) -> Any:
        """The answer of whichever place decides; None if neither gives one."""
        for place in self._places:
            try:
                return place.call(path, body)
            except HttpError as refused:
                told = refused.status == NO_ANSWER or any(
                    word in refused.body for word in ("has moved", "is moving", "given up", "ready", "being deployed")
                )
                if refused.status not in REFUSED or not told:
                    raise
            except (URLError, OSError):
                continue  # nothing listens there, or it has just ended
        return None

    def ask(self, path: str, **body: Any) -> Any:
        return self.call(f"/api/project/{self.project}/{path}", body)

    def runs(self) -> dict[str, dict[str, Any]] | None:
        found = self.call("/api/runs/list", {"project_name": self.project, "only_active": False, "limit": 100})
        return None if found is None else {run["run_spec"]["run_name"]: run for run in found}

    def submit(self, configuration: dict[str, Any]) -> bool:
        """Whether it is there. After a call without an answer one must look, or there would be two."""
        plan = self.ask("runs/get_plan", run_spec={"configuration": {**configuration, "resources": SMALL}})
        if plan is None:
            return False
        body = {"plan": {"run_spec": plan["run_spec"], "current_resource": None}, "force": False}
        if self.ask("runs/apply", **body) is not None:
            return True
        found = None
        while found is None and not self._over.wait(0.5):
            found = self.runs()
        return found is not None and configuration["name"] in found

    def next(self) -> None:
        name = f"run-{len(self.taken)}"
        mark = f"echo ran >> {self.marks}/{name}.$DSTACK_NODE_RANK"  # jobs have users of their own
        commands = ["echo begun", mark, f'test "$WORD" = "{WORD}"', f"seq 1 {len(LINES)}", "sleep 4", "echo over"]
        configuration = {
            "type": "task",
            "name": name,
            "nodes": nodes_of(name),
            "env": {"WORD": "${{ secrets.word }}"},
            "commands": commands,
        }
        if self.submit(configuration):
            self.taken.append(name)

    def follow(self, run: str, job: str) -> None:
        """Read what is new of the log, as `dstack logs --follow` does, with the token of whichever place gave it."""
        while True:
            request = {"run_name": run, "job_submission_id": job, "limit": 10, "descending": False}
            page = self.ask("logs/poll", **request, next_token=self._token)
            if page is None:
                return
            data = b"".join(base64.b64decode(entry["message"]) for entry in page["logs"])
            self.followed += data[self._read :]
            self._read = max(self._read, len(data))
            if page["next_token"] in (None, self._token):
                return
            self._token, self._read = page["next_token"], 0

    def log(self, run: dict[str, Any]) -> list[list[str]]:
        """The lines of each node."""
        found = []
        for job in run["jobs"]:
            (submission,) = job["job_submissions"]
            name = run["run_spec"]["run_name"]
            request = {"run_name": name, "job_submission_id": submission["id"], "limit": 1000, "descending": False}
            data, token = b"", None
            while True:
                page = self.ask("logs/poll", **request, next_token=token)
                data += b"".join(base64.b64decode(entry["message"]) for entry in page["logs"])
                if not page["logs"] or page["next_token"] in (None, token):
                    break
                token = page["next_token"]
            found.append(data.decode().splitlines())
        return found

    @contextmanager
    def going_on(self, run: str, job: str) -> Iterator[None]:
        threads = [
            threading.Thread(target=self._repeat, args=(EVERY, self.next)),
            threading.Thread(target=self._repeat, args=(1.0, lambda: self.follow(run, job))),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()
            assert not self.errors, self.errors

    def _repeat(self, pause: float, do: Callable[[], None]) -> None:
        try:
            while not self._over.is_set():
                began = time.monotonic()
                do()
                self._over.wait(max(0.1, pause - (time.monotonic() - began)))
        except Exception as error:
            self.errors.append(f"{type(error).__name__}: {error}")


def nodes_of(name: str) -> int:
    """Every fourth is a task on two nodes, which takes a workflow to start."""
    return 2 if int(name.partition("-")[2]) % 4 == 2 else 1
