"""The feed of changes under `/api/v1`: the lists whole, then only what is new, for those who may see it; with the log
of a process that is alone, and with the events of those that share a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from chalicelib.api.routes.v1.changes import LONGEST
from chalicelib.api.v1 import PREFIX, cursors
from chalicelib.domain import keys
from chalicelib.domain.events import EventType
from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.runs import RunStatus
from chalicelib.domain.tenants import ProjectRole
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.runtime.chalice_app import RESOURCES, ControlPlane
from chalicelib.store import nouns
from chalicelib.store.announcing_store import AnnouncingStore
from chalicelib.store.commit_journal import CommitJournal
from chalicelib.store.history import LATE
from chalicelib.store.port import Change
from chalicelib.usecases.live.event_changes import SLICE
from chalicelib.usecases.live.following import PAGE
from tests.api.rig import Rig
from tests.api.test_app import event
from tests.api.test_runs import job_of, placed, run_of
from tests.api.v1.rest import TASK, Client
from tests.api.v1.test_runs import copies
from tests.world import gateway_seats
from tests.world import nouns as b
from tests.world.ports import RecordedStore

LISTS = ("runs", "fleets", "instances", "volumes", "gateways")


@pytest.fixture(params=["journal", "events"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    made = Rig.at(tmp_path)
    if request.param == "journal":
        journal = CommitJournal("boot")

        def note(changes: Sequence[Change]) -> None:
            journal.wrote(changes)

        store = AnnouncingStore(made.world.plane.store, note)
        made.world.plane = replace(made.world.plane, store=store, journal=journal)
    yield made
    made.world.plane.store.close()


@dataclass
class Follower:
    """Keeps what it is told, as a page does."""

    api: Client
    query: str = ""
    cursor: str = ""
    things: dict[str, dict[str, Any]] = field(default_factory=lambda: {kind: {} for kind in LISTS})
    last: Any = None

    def poll(self) -> Any:
        self.last = answer = self.api.ok(
            "GET",
            f"/api/v1/changes?cursor={self.cursor}{self.query}"
            if self.cursor
            else f"/api/v1/changes?{self.query.lstrip('&')}",
        )
        if answer["reset"]:
            self.things = {kind: {} for kind in LISTS}
        for kind in LISTS:
            self.things[kind] |= {each["id"]: each for each in answer[kind]}
            for gone in answer["removed"][kind]:
                self.things[kind].pop(gone, None)
        self.cursor = answer["cursor"]
        return answer

    def load(self) -> list[int]:
        """Everything. Returns how many things each page had."""
        sizes = []
        while True:
            answer = self.poll()
            sizes.append(sum(len(answer[kind]) for kind in LISTS))
            if not answer["more"]:
                return sizes

    def names(self, kind: str = "runs") -> set[str]:
        return {each["name"] for each in self.things[kind].values()}


def new(answer: Any, kind: str = "runs") -> list[tuple[str, str]]:
    return [(each["name"], each["status"]) for each in answer[kind]]


def submit(rig: Rig, name: str) -> str:
    api = Client.of(rig)
    return str(api.ok("POST", api.runs, {**TASK, "name": name}, status=201)["id"])


def move(rig: Rig, run_id: str, status: RunStatus, *, began: int = 0) -> None:
    """As a pass does that began so long ago: the change and its event in one commit."""
    run, now = run_of(rig, run_id), rig.world.clock.now() - began
    draft = Draft(now)
    draft.save(run.with_(status=status))
    draft.record(EventType.status, run, before=run.status.value, after=status.value)
    step = draft.step()
    rig.save(*step.saves, *step.events)


def test_lists_come_whole_and_then_what_changes(rig: Rig) -> None:
    one, two = submit(rig, "one"), submit(rig, "two")
    rig.world.clock.at += 2 * LATE
    follower = Follower(Client.of(rig))
    assert follower.load() == [2] and follower.last["reset"] and follower.names() == {"one", "two"}
    quiet = follower.poll()
    assert not any(quiet[kind] for kind in LISTS) and not quiet["reset"]
    move(rig, one, RunStatus.provisioning)
    assert new(follower.poll()) == [("one", "provisioning")] and follower.last["poll_after_ms"] == 2000
    rig.world.clock.at += SLICE  # what was written with it may come again
    three = submit(rig, "three")
    move(rig, two, RunStatus.running)
    assert sorted(new(follower.poll())) == [("three", "submitted"), ("two", "running")]
    rig.save(run_of(rig, three).with_(status=RunStatus.done, finished_at=rig.world.clock.now()))
    Client.of(rig).call("DELETE", f"{Client.of(rig).runs}/three")
    assert follower.poll()["removed"]["runs"] == [three] and follower.names() == {"one", "two"}


def test_a_run_that_took_the_name_of_an_ended_one_replaces_it(rig: Rig) -> None:
    first = submit(rig, "one")
    rig.save(run_of(rig, first).with_(status=RunStatus.done, finished_at=rig.world.clock.now()))
    rig.world.clock.at += MINUTE
    follower = Follower(Client.of(rig))
    follower.load()
    second = submit(rig, "one")
    follower.poll()
    assert set(follower.things["runs"]) == {second}


def test_who_has_it_all_gets_nothing(rig: Rig) -> None:
    submit(rig, "one")
    rig.world.clock.at += MINUTE
    follower = Follower(Client.of(rig))
    follower.load()
    follower.poll()
    url = f"/api/v1/changes?cursor={follower.cursor}"
    tag = follower.api.call("GET", url).headers["ETag"]
    for _ in range(3):
        rig.world.clock.at += SECOND
        assert follower.api.call("GET", url, if_none_match=tag).status == 304
    submit(rig, "two")
    assert follower.api.call("GET", url, if_none_match=tag).status == 200


def test_a_pass_that_commits_late_is_seen(rig: Rig) -> None:
    """Its events have the time at which it began, which is before those that a follower has read already."""
    one, two = submit(rig, "one"), submit(rig, "two")
    follower = Follower(Client.of(rig))
    follower.load()
    for _ in range(4):
        rig.world.clock.at += 5 * SECOND
        move(rig, one, RunStatus.running)
        follower.poll()
    move(rig, two, RunStatus.running, began=LATE - SECOND)
    assert ("two", "running") in new(follower.poll())
    rig.world.clock.at += LATE
    follower.poll()
    assert new(follower.poll()) == []


@pytest.mark.slow
def test_a_commit_between_the_pages_of_the_lists_is_seen(rig: Rig) -> None:
    first = submit(rig, "one")
    copies(rig, "one", rig.project, PAGE + 10)
    follower = Follower(Client.of(rig))
    assert follower.poll()["more"] and follower.last["poll_after_ms"] == 0
    newest = follower.last["runs"][0]["id"]
    move(rig, newest, RunStatus.running)
    move(rig, first, RunStatus.running)
    assert follower.load()[-1] == 11
    follower.poll()
    assert len(follower.things["runs"]) == PAGE + 11
    assert {follower.things["runs"][each]["status"] for each in (newest, first)} == {"running"}


def test_a_follower_sees_its_own_projects_only(rig: Rig) -> None:
    lab = rig.another_project("lab")
    ann, token = Client.of(rig, token=rig.user("ann", ProjectRole.user)), rig.user("bob", ProjectRole.user, lab)
    mine, theirs, every = Follower(ann), Follower(Client.of(rig, token=token)), Follower(Client.of(rig))
    for each in (mine, theirs, every):
        each.load()
    submit(rig, "one")
    for each in (mine, theirs, every):
        each.poll()
    assert (mine.names(), theirs.names(), every.names()) == ({"one"}, set(), {"one"})
    assert Follower(Client.of(rig), "&projects=lab").load() == [0]
    asked = Follower(Client.of(rig, token=token), f"&projects=lab,nosuch,{rig.project.name}")
    assert asked.poll()["projects"] == ["lab"] == asked.poll()["projects"], "the others aren't bob's, or don't exist"
    assert Follower(ann).poll()["projects"] is None
    assert Follower(Client.of(rig, token=token), f"&projects={rig.project.name}").load() == [0]


def test_who_leaves_a_project_loses_what_is_in_it(rig: Rig) -> None:
    token = rig.user("ann", ProjectRole.user)
    submit(rig, "one")
    follower = Follower(Client.of(rig, token=token))
    follower.load()
    assert follower.names() == {"one"}
    Client.of(rig).call("DELETE", f"/api/v1/projects/{rig.project.name}/members/ann")
    follower.poll()
    assert follower.last["reset"] and follower.names() == set()


def test_machines_and_their_fleets_change_together(rig: Rig) -> None:
    pool = b.fleet("pool").with_(project_id=rig.project.id)
    machine = b.machine(0, pool, status=InstanceStatus.provisioning).with_(project_id=rig.project.id)
    rig.save(pool, machine)
    rig.world.plane.store.commit([nouns.pointer(keys.fleet_name(rig.project.id, "pool"), pool.id)])
    follower = Follower(Client.of(rig))
    assert follower.load() == [2] and follower.last["poll_after_ms"] == 2000
    draft = Draft(rig.world.clock.now())
    ended = rig.world.again(machine).with_(status=InstanceStatus.terminated, finished_at=draft.now)
    draft.save(ended)
    draft.record(EventType.status, ended, before="provisioning", after="terminated")
    rig.save(*draft.step().saves, *draft.step().events)
    answer = follower.poll()
    assert answer["removed"]["instances"] == [machine.id]
    assert [(each["name"], each["instance_count"]) for each in answer["fleets"]] == [("pool", 0)]


def test_changes_without_an_event_come_within_a_minute(rig: Rig) -> None:
    """Such as why a job waits. A process that is alone knows of them at once."""
    run_id = submit(rig, "one")
    rig.world.clock.at += MINUTE
    follower = Follower(Client.of(rig))
    follower.load()
    rig.save(run_of(rig, run_id).with_(message="no offer fits"))
    for _ in range(14):
        follower.poll()
        rig.world.clock.at += 5 * SECOND
    assert follower.things["runs"][run_id]["why"] == "no offer fits"


def test_the_pause_follows_what_is_going_on(rig: Rig) -> None:
    run_id = submit(rig, "one")
    follower = Follower(Client.of(rig))
    follower.load()
    assert follower.poll()["poll_after_ms"] == 5_000
    assert (
        follower.api.ok("GET", f"/api/v1/changes?cursor={follower.cursor}&tail=true", status=200)["poll_after_ms"]
        == 1_000
    )
    rig.save(placed(job_of(rig, run_id), rig.world.clock.now()))
    move(rig, run_id, RunStatus.terminating)
    assert follower.poll()["poll_after_ms"] == 2_000
    move(rig, run_id, RunStatus.done)
    follower.poll()
    rig.world.clock.at += 2 * MINUTE
    assert follower.poll()["poll_after_ms"] == 30_000


def test_what_is_no_cursor_of_this_feed_is_refused(rig: Rig) -> None:
    follower = Follower(Client.of(rig))
    follower.load()
    for query in ("cursor=abc", f"cursor={follower.cursor}&kinds=runs", "kinds=people", "page=2"):
        assert follower.api.refused("GET", f"/api/v1/changes?{query}")[0] == 422, query


@pytest.mark.parametrize("digits", ["\u00b2", "\u0661", "x", ""])
def test_who_comes_with_a_mark_that_is_none_begins_again(rig: Rig, digits: str) -> None:
    follower = Follower(Client.of(rig))
    follower.load()
    listing = cursors.listing("/api/v1/changes", {"kinds": "", "projects": ""})
    _, *rest = cursors.decode(follower.cursor, listing)
    for mark in (f"{digits}.", f"boot.{digits}"):
        follower.cursor = cursors.encode(listing, mark, *rest)
        assert follower.poll()["reset"], mark


def test_in_aws_who_asks_for_a_stream_gets_the_document(rig: Rig) -> None:
    """So that a client needs no setting: it looks at the type of the answer."""
    submit(rig, "one")
    sent = event(RESOURCES[PREFIX], method="GET", **{"proxy+": "changes"})
    sent["path"], sent["pathParameters"] = "/api/v1/changes", {"proxy": "changes"}
    sent["headers"]["Accept"] = "text/event-stream, application/json"
    answer = ControlPlane(lambda: rig.world.plane)(sent, None)
    kind = {name.lower(): value for name, value in answer["headers"].items()}["content-type"]
    assert (answer["statusCode"], kind) == (200, "application/json")
    assert [run["name"] for run in orjson.loads(answer["body"])["runs"]] == ["one"]


def test_a_poll_reads_little_when_nothing_has_changed(rig: Rig) -> None:
    """Who calls, their project, and of events an empty range: however many runs there are."""
    submit(rig, "one")
    copies(rig, "one", rig.project, 120)
    rig.world.clock.at += MINUTE
    follower = Follower(Client.of(rig, token=rig.user("ann", ProjectRole.user)), f"&projects={rig.project.name}")
    follower.load()
    follower.poll()
    store = RecordedStore(rig.world.plane.store)
    api = replace(follower.api, plane=replace(rig.world.plane, store=store))
    api.ok("GET", f"/api/v1/changes?cursor={follower.cursor}{follower.query}")
    queries = [partition for name, partition in store.calls if name == "query"]
    assert len(queries) == (0 if rig.world.plane.journal else 1) and len(store.calls) <= 8, store.calls


def test_when_another_gateway_becomes_the_default_both_have_changed(rig: Rig) -> None:
    doors = [gateway_seats.gateway(rig.project.id, name=name, due_at=b.NOW) for name in ("one", "two")]
    for door in doors:
        rig.save(door)
        rig.world.plane.store.commit([nouns.pointer(keys.gateway_name(rig.project.id, door.name), door.id)])
    rig.ok("P/gateways/set_default", {"name": "one"})
    rig.world.clock.at += MINUTE
    follower = Follower(Client.of(rig))
    follower.load()
    rig.ok("P/gateways/set_default", {"name": "two"})
    follower.poll()
    assert {each["name"]: each["default"] for each in follower.things["gateways"].values()} == {
        "one": False,
        "two": True,
    }


@pytest.mark.slow
def test_a_longest_cursor_is_taken(rig: Rig) -> None:
    """With digests of all the time in which commits may be late, and as many runs as leave a trace of their own."""
    submit(rig, "one")
    copies(rig, "one", rig.project, 3 * PAGE)
    follower = Follower(Client.of(rig))
    for _ in range(LATE // SLICE + 2):
        submit(rig, f"at-{rig.world.clock.now()}")
        rig.world.clock.at += SLICE
    follower.load()
    rig.world.clock.at += MINUTE
    for _ in range(2):
        follower.poll()
        assert len(follower.cursor) < LONGEST
