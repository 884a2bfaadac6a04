"""What a door remembers of services and of callers: asked once, forgotten when it changes, never kept when it changed
while it was being read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from chalicelib.domain.serving import CallerVerdict, Served
from chalicelib.serving.access import BAD, GOOD, ServiceAccess, bearer
from chalicelib.serving.directory import ATTEMPTS, Directory
from chalicelib.serving.door import Door
from tests.serving.door import TOKEN, service
from tests.serving.embedded import Known, micros
from tests.serving.test_balancer import replica

APP = ("main", "app")


class Slow:
    """Reads that end when the test lets them."""

    def __init__(self) -> None:
        self.calls = 0
        self.go = asyncio.Event()

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        self.calls += 1
        found = work()  # as of now: what changes later isn't in it
        await self.go.wait()
        return found


def known(*services: Served) -> Known:
    made = Known()
    made.services = {(each.project_name, each.run_name): each for each in services}
    return made


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_many_askers_share_one_look_and_later_ones_need_none() -> None:
    async def main() -> None:
        slow, app = Slow(), service()
        directory = Directory(known(app), slow.in_thread, lambda found: None)
        lookups = [asyncio.ensure_future(directory.find(APP)) for _ in range(5)]
        await settle()
        slow.go.set()
        assert await asyncio.gather(*lookups) == [app] * 5
        assert await directory.find(APP) == directory.peek(APP) == app
        assert slow.calls == 1

    asyncio.run(main())


def test_a_service_that_changes_all_the_time_is_found_nevertheless() -> None:
    """Who asks gets what was right a moment ago; nobody after them does."""

    async def main() -> None:
        app, seen = service(), list[Served]()
        services = known(app)

        async def in_thread(work: Callable[[], Any]) -> Any:
            found = work()
            services.services[APP] = found.with_(since=found.since + 1)
            directory.changed([app.run_id])
            return found

        directory = Directory(services, in_thread, seen.append)
        found = await asyncio.wait_for(directory.find(APP), 5)
        assert found == app.with_(since=ATTEMPTS - 1)
        assert directory.peek(APP) is None and seen == [found]

    asyncio.run(main())


def test_one_asker_that_leaves_takes_the_look_from_nobody() -> None:
    async def main() -> None:
        slow, app = Slow(), service()
        directory = Directory(known(app), slow.in_thread, lambda found: None)
        one, other = (asyncio.ensure_future(directory.find(APP)) for _ in range(2))
        await settle()
        one.cancel()
        slow.go.set()
        assert await other == app

    asyncio.run(main())


def test_what_changes_while_it_is_read_is_read_again() -> None:
    async def main() -> None:
        slow, app = Slow(), service()
        services = known(app)
        directory = Directory(services, slow.in_thread, lambda found: None)
        lookups = asyncio.ensure_future(directory.find(APP))
        await settle()
        services.services[APP] = newer = app.with_(auth=True)
        directory.changed([app.run_id])
        slow.go.set()
        assert await lookups == newer == directory.peek(APP)

    asyncio.run(main())


def test_a_change_forgets_and_wakes_who_waits_for_it_alone() -> None:
    async def main() -> None:
        slow, app, other = Slow(), service(), service(name="other")
        slow.go.set()
        refreshed: list[Served] = []
        directory = Directory(known(app, other), slow.in_thread, refreshed.append)
        await directory.find(APP)
        change, unmoved = directory.change_of(app.run_id), directory.change_of(other.run_id)
        directory.changed([app.run_id])
        assert change.is_set() and not unmoved.is_set() and directory.peek(APP) is None
        assert await directory.refresh(app.run_id) == app == directory.peek(APP)
        assert refreshed == [app, app]
        directory.wake_all()
        assert unmoved.is_set()

    asyncio.run(main())


def test_to_look_again_takes_one_read_and_another_run_of_the_same_name_isnt_it() -> None:
    async def main() -> None:
        slow, app = Slow(), service()
        slow.go.set()
        services = known(app)
        directory = Directory(services, slow.in_thread, lambda found: None)
        await directory.find(APP)
        directory.changed([app.run_id])
        assert await directory.refresh(app.run_id) == app and slow.calls == 2
        services.services[APP] = after = service()
        directory.changed([app.run_id])
        assert await directory.refresh(app.run_id) is None
        assert await directory.refresh(after.run_id) == after
        directory.changed([after.run_id])
        services.services.clear()
        assert await directory.refresh(after.run_id) is await directory.refresh(app.run_id) is None

    asyncio.run(main())


class Counted(Known):
    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def named(self, project: str, run: str) -> Served | None:
        self.reads += 1
        return super().named(project, run)

    def of(self, run_id: str) -> Served | None:
        self.reads += 1
        return super().of(run_id)


def test_many_changes_of_a_service_are_looked_at_together() -> None:
    async def main() -> None:
        services, app = Counted(), service()
        services.services[APP] = app
        door = Door(services, services, services.report, micros)
        door.bind()
        for _ in range(500):
            door.changed([app.run_id], refresh=[app.run_id])
        while not services.reads:
            await asyncio.sleep(0)
        services.services[APP] = newest = app.with_(replicas=(replica("a", draining=True),))
        door.changed([app.run_id], refresh=[app.run_id])
        while not (reports := door.pending_traffic()):
            await asyncio.sleep(0)
        assert [(each.run_id, each.let_go) for each in reports] == [(newest.run_id, ("a",))]
        assert services.reads <= 6
        await door.closed()

    asyncio.run(main())


def test_a_replica_that_drained_before_the_server_started_is_let_go() -> None:
    async def main() -> None:
        services, app = Counted(), service((replica("a", draining=True),))
        services.services[APP] = app
        door = Door(services, services, services.report, micros)
        door.changed([app.run_id], refresh=[app.run_id])
        door.bind()
        while not (reports := door.pending_traffic()):
            await asyncio.sleep(0)
        assert [(each.run_id, each.let_go) for each in reports] == [(app.run_id, ("a",))]
        await door.closed()

    asyncio.run(asyncio.wait_for(main(), 10))


def test_a_name_of_nobody_is_asked_every_time_and_never_kept() -> None:
    async def main() -> None:
        slow = Slow()
        slow.go.set()
        services = known()
        directory = Directory(services, slow.in_thread, lambda found: None)
        assert await directory.find(APP) is None
        services.services[APP] = app = service()
        assert await directory.find(APP) == app

    asyncio.run(main())


class Judge:
    """The rights of one token, and a clock."""

    def __init__(self) -> None:
        self.good, self.calls, self.now, self.takes = True, 0, 0.0, 0.0
        self.ends_at: float | None = None
        self.access = ServiceAccess(self, self._in_thread, lambda: self.now)

    def member(self, token: str, project: str, run: str) -> CallerVerdict:
        self.calls += 1
        left = None if self.ends_at is None else self.ends_at - self.now
        return CallerVerdict(allowed=self.good and (left is None or left > 0), ends_in=left)

    async def _in_thread(self, work: Callable[[], CallerVerdict]) -> CallerVerdict:
        found = work()
        self.now += self.takes
        return found

    def verdict(self) -> bool:
        return asyncio.run(self.access.judge(TOKEN, "main"))


def test_a_good_verdict_lasts_a_minute_and_a_bad_one_five_seconds() -> None:
    judge = Judge()
    assert judge.verdict()
    judge.good, judge.now = False, GOOD - 1
    assert judge.verdict() and judge.calls == 1
    judge.now = GOOD + 1
    assert not judge.verdict()
    judge.good, judge.now = True, GOOD + BAD
    assert not judge.verdict()
    judge.now = GOOD + BAD + 2
    assert judge.verdict() and judge.calls == 3


def test_no_verdict_is_good_for_longer_than_its_token() -> None:
    judge = Judge()
    judge.ends_at = 10.0
    assert judge.verdict()
    judge.now = 9.9
    assert judge.verdict() and judge.calls == 1
    judge.now = 10.0
    assert not judge.verdict() and judge.calls == 2


def test_its_end_counts_from_when_it_was_asked_for() -> None:
    judge = Judge()
    judge.ends_at, judge.takes = 10.0, 8.0
    assert judge.verdict()
    judge.now = 10.0
    assert not judge.verdict() and judge.calls == 2


def test_a_change_of_rights_counts_at_once_and_while_somebody_is_being_judged() -> None:
    judge = Judge()
    assert judge.verdict()
    judge.good = False
    judge.access.changed()
    assert not judge.verdict()

    async def overtaken(work: Callable[[], CallerVerdict]) -> CallerVerdict:
        verdict = work()
        access.changed()
        return verdict

    judge.good = True
    access = ServiceAccess(judge, overtaken, lambda: 0.0)
    assert asyncio.run(access.judge(TOKEN, "main")) and access.known(TOKEN, "main", "") is None


def test_a_verdict_is_for_one_project() -> None:
    judge = Judge()
    assert judge.verdict()
    assert judge.access.known(TOKEN, "main", "") and judge.access.known(TOKEN, "other", "") is None


def test_a_token_is_read_strictly() -> None:
    def read(*values: bytes) -> str:
        return bearer([(b"authorization", value) for value in values])

    assert read(b"Bearer abc") == read(b"bearer  abc ") == "abc"
    assert read() == read(b"Basic abc") == read(b"Bearer") == read(b"Bearer a", b"Bearer b") == ""
    assert read("Bearer é".encode()) == read(b"Bearer " + b"x" * 5000) == ""
