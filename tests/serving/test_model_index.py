"""Which services of a project have a model is known without reading anything while nothing changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from chalicelib.domain.serving import Served, ServedModel
from chalicelib.serving import model_index
from chalicelib.serving.directory import Directory
from chalicelib.serving.model_index import ModelIndex
from tests.serving.test_models import service


class Plane:
    """Services that come and go, and a count of who looks."""

    def __init__(self, *services: Served) -> None:
        self.live = {each.run_id: each for each in services}
        self.reads: list[str] = []
        self.directory = Directory(self, self.in_thread, lambda found: None)
        self.model_index = ModelIndex(self, self.directory, self.in_thread)

    def named(self, project: str, run: str) -> Served | None:
        self.reads.append(f"named {run}")
        return next((each for each in self.live.values() if (each.project_name, each.run_name) == (project, run)), None)

    def elsewhere(self, project: str, run: str) -> str:
        return ""

    def of(self, run_id: str) -> Served | None:
        self.reads.append(f"of {run_id}")
        return self.live.get(run_id)

    def with_models(self, project: str) -> list[Served]:
        self.reads.append(f"all of {project}")
        return [each for each in self.live.values() if each.project_name == project and each.model]

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        return work()

    def commit(self, *services: Served) -> None:
        """These are there now, or others; those without a name are gone."""
        for each in services:
            self.live[each.run_id] = each
            if not each.run_name:
                del self.live[each.run_id]
        self.changed(*(each.run_id for each in services))

    def changed(self, *run_ids: str) -> None:
        self.directory.changed(run_ids)
        self.model_index.changed(run_ids)

    async def models(self, project: str = "main") -> list[str]:
        self.reads.clear()
        return [f"{each.run_name}:{each.model.name}" for each in await self.model_index.of(project) if each.model]


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(story())  # type: ignore[arg-type]


def test_it_reads_once() -> None:
    async def story() -> None:
        plane = Plane(service("a"), service("b", "qwen"), service("web").with_(model=None))
        assert await plane.models() == ["a:llama", "b:qwen"]
        assert plane.reads == ["all of main", "named a", "named b"]
        assert await plane.models() == ["a:llama", "b:qwen"]
        assert plane.reads == []

    run(story)


def test_what_comes_goes_and_changes_is_seen_at_the_next_request() -> None:
    async def story() -> None:
        plane = Plane(service("a"))
        await plane.models()
        plane.commit(service("b"), service("web").with_(model=None))
        assert await plane.models() == ["a:llama", "b:llama"]
        assert sorted(plane.reads) == ["named b", "of id-of-b", "of id-of-web"]
        plane.commit(service("a", replicas=3), service("web").with_(model=None))
        assert len((await plane.model_index.of("main"))[0].replicas) == 3
        plane.commit(service("b").with_(run_name=""))
        assert await plane.models() == ["a:llama"]
        again = service("b", "qwen").with_(run_id="its next run")
        plane.commit(again)
        assert await plane.models() == ["a:llama", "b:qwen"]

    run(story)


def test_runs_that_are_no_services_are_looked_at_once() -> None:
    async def story() -> None:
        plane = Plane(service("a"))
        plane.changed("a task")
        await plane.models()
        for _ in range(3):
            plane.changed("a task", "another")
            await plane.models()
        assert plane.reads == []

    run(story)


def test_nothing_is_noted_while_nobody_asks_for_models() -> None:
    async def story() -> None:
        plane = Plane(service("a"))
        plane.changed(*map(str, range(100)))
        assert await plane.models() == ["a:llama"]
        assert plane.reads == ["all of main", "named a"]

    run(story)


def test_more_changes_than_are_worth_looking_at_begin_it_anew() -> None:
    async def story() -> None:
        plane = Plane(service("a"))
        await plane.models()
        plane.commit(service("b"))
        plane.changed(*map(str, range(model_index.MOST)))
        assert await plane.models() == ["a:llama", "b:llama"]
        assert plane.reads == ["all of main", "named b"]

    run(story)


def test_two_who_ask_at_once_both_see_the_new_one() -> None:
    async def story() -> None:
        plane = Plane(service("a"))
        await plane.models()
        plane.commit(service("b").with_(model=ServedModel(name="qwen")))
        found = await asyncio.gather(*(plane.model_index.of("main") for _ in range(5)))
        assert [[each.run_name for each in one] for one in found] == [["a", "b"]] * 5
        assert plane.reads.count("of id-of-b") == 1

    run(story)


def test_projects_are_apart() -> None:
    async def story() -> None:
        plane = Plane(service("a"), service("b").with_(project_name="other", run_id="theirs"))
        assert await plane.models() == ["a:llama"]
        assert await plane.models("other") == ["b:llama"]

    run(story)
