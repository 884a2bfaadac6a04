"""A control plane moves to another place and back while it works. The command that moves it is killed at each of its
calls, before and after. Nothing is lost, nothing is done twice, and never do both places decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from chalicelib.domain.instants import HOUR
from chalicelib.runtime.migration.signpost import fenced
from tests.world.moving import MovingWorld, Server, move
from tests.world.site import ADMIN

HEADERS = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
FLEET = {"type": "fleet", "name": "pool", "nodes": "0..6"}


class Load:
    """A user who submits a run whenever a control plane takes it."""

    def __init__(self, world: MovingWorld, urls: list[str]) -> None:
        self.world, self._urls = world, urls
        self.taken: list[str] = []
        self._next = 0.0

    def call(self, path: str, body: Any) -> tuple[int, Any]:
        """The answer of whichever decides; else the last refusal."""
        status, answer = 0, b"null"
        for url in self._urls:
            if url in self.world.answers:
                status, answer = self.world.answers[url]("POST", path, HEADERS, orjson.dumps(body))
                if status == 200:
                    break
        return status, orjson.loads(answer or b"null")

    def submit(self) -> None:
        name = f"run-{len(self.taken)}"
        configuration = {"type": "task", "name": name, "commands": ["echo begun", "sleep 8", "echo over"]}
        spec = {"configuration": {**configuration, "resources": {"cpu": "1..", "memory": "1GB..", "disk": "10GB.."}}}
        status, answer = self.call("/api/project/main/runs/get_plan", {"run_spec": spec})
        if status == 200:
            plan = {"run_spec": answer["run_spec"], "current_resource": None}
            status, answer = self.call("/api/project/main/runs/apply", {"plan": plan, "force": False})
        if status == 200:
            self.taken.append(name)
        else:
            assert "moved" in str(answer) or "moving" in str(answer), answer

    def goes_on(self) -> None:
        """A moment passes in the world."""
        if self.world.time.seconds() >= self._next and len(self.taken) < 40:
            self._next = self.world.time.seconds() + 4.0
            self.submit()
        self.world.time.pass_(0.1)


class Moving:
    def __init__(self, folder: Path) -> None:
        self.world = MovingWorld()
        self.here = Server(self.world, folder / "here", "http://127.0.0.1:30000")
        self.there = Server(self.world, folder / "there", "http://127.0.0.1:30001")
        self.here.start()
        self.load = Load(self.world, [self.here.url, self.there.url])

    def passes(self) -> None:
        """A moment, after which each server has noticed what its fence says."""
        assert not (self.here.decides() and self.there.decides())
        for each in (self.here, self.there):
            each.notice()
        self.load.goes_on()

    def move(self, source: Server, target: Server) -> int:
        killed = move(self.world, lambda watched: (source.place(watched), target.place(watched)), self.passes)
        target.start()
        source.start()
        return killed

    def until(self, what: str, done: Callable[[], bool]) -> None:
        end = self.world.time.at + HOUR
        while not done():
            assert self.world.time.at < end, f"waited an hour in vain for {what}"
            self.world.time.pass_(1.0)

    def runs(self) -> dict[str, str]:
        status, found = self.load.call("/api/runs/list", {"only_active": False, "limit": 100})
        assert status == 200
        return {run["run_spec"]["run_name"]: run["status"] for run in found}

    def log(self, name: str) -> bytes:
        (site,) = [each.site for each in (self.here, self.there) if each.site is not None]
        run = next(
            r
            for r in site.call("/api/runs/list", {"only_active": False, "limit": 100})
            if r["run_spec"]["run_name"] == name
        )
        job = run["jobs"][0]["job_submissions"][-1]["id"]
        page = site.root.ports.logs.read(run["project_id"] if "project_id" in run else self.project_id(site), job)
        return b"".join(data for _, data in page.records)

    def project_id(self, site: Any) -> str:
        return str(site.call("/api/projects/main/get", {})["project_id"])

    def close(self) -> None:
        self.here.close()
        self.there.close()


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    with closing(Moving(tmp_path)) as found:
        yield found


@pytest.mark.slow
def test_a_control_plane_moves_there_and_back_whenever_the_command_is_killed(moving: Moving) -> None:
    load, world = moving.load, moving.world
    status, answer = load.call(
        "/api/project/main/fleets/apply", {"plan": {"spec": {"configuration": FLEET}}, "force": False}
    )
    assert status == 200, answer
    for _ in range(100):
        load.goes_on()
    assert load.taken

    killed = moving.move(moving.here, moving.there)
    assert killed > 20
    assert fenced(moving.here.folder) is not None and fenced(moving.there.folder) is None
    before_back = len(load.taken)
    for _ in range(100):
        moving.passes()
    assert len(load.taken) > before_back
    killed = moving.move(moving.there, moving.here)
    assert killed > 20
    assert fenced(moving.there.folder) is not None and fenced(moving.here.folder) is None

    moving.until("all runs", lambda: set(moving.runs().values()) == {"done"})
    assert set(moving.runs()) == set(load.taken)
    assert {moving.log(name) for name in load.taken} == {b"begun\nover\n"}
    site = moving.here.site
    assert site is not None
    assert len(site.hosts.tasks) == len(load.taken)  # each job ran once
    assert world.redirected
    site.call("/api/project/main/fleets/delete", {"names": ["pool"]})
    moving.until("the machines' end", lambda: not site.cloud.resources())
