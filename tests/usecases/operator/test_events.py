"""History as one stream: which events a reader sees, in which order, and how pages continue."""

from __future__ import annotations

import random
from typing import Any

import pytest

from chalicelib.domain.events import EVERYWHERE, Event, EventType, Target
from chalicelib.domain.retention import Retention
from chalicelib.domain.tenants import GlobalRole, Project, User
from chalicelib.store import nouns
from chalicelib.store.history import SPAN, HistoryStore
from chalicelib.store.memory import MemoryStore
from chalicelib.usecases.operator import events
from chalicelib.usecases.operator.events import PAGE, EventFilter, deleted_actors, list_events
from tests.harness.examples import seeds
from tests.world.time import NOW

ANN = User(id="ann", name="ann", created_at=NOW, token_hash="")
ROOT = User(id="root", name="root", created_at=NOW, token_hash="", role=GlobalRole.admin)
PROJECTS = {name: Project(id=name, name=name, owner_id="ann", created_at=NOW) for name in ("p", "q")}


def event(
    id: str, at: int, *targets: tuple[str, str], project: str = "p", run: str = "", fleet: str = "", actor: str = ""
) -> Event:
    return Event(
        id=id,
        project_id=project,
        at=NOW + at,
        type=EventType.created,
        actor_id=actor or None,
        actor_name=actor or None,
        targets=tuple(Target(type=kind, id=name, name=name) for kind, name in targets),
        run_id=run or None,
        fleet_id=fleet or None,
    )


EVENTS = [
    event("a", 1, ("run", "r1"), run="r1", actor="ann"),
    event("b", 2, ("job", "j1"), ("instance", "i1"), run="r1", fleet="f1"),
    event("c", 3, ("fleet", "f1"), fleet="f1"),
    event("d", 3, ("run", "r2"), run="r2", project="q"),
    event("e", 4, ("run", "r3"), run="r3", project="hidden"),
    event("f", 5, ("user", "ann"), project=EVERYWHERE, actor="root"),
    event("g", 6, ("user", "bob"), project=EVERYWHERE, actor="root"),
    event("h", 7, ("user", "cat"), project=EVERYWHERE, actor="ann"),
]


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    store.commit([nouns.put(each) for each in EVENTS])
    return store


def seen(store: MemoryStore, reader: User = ANN, **wanted: Any) -> str:
    return "".join(each.id for each in list_events(store, reader, PROJECTS, EventFilter(**wanted)))


def test_a_reader_sees_their_projects_and_what_is_theirs_of_the_rest(store: MemoryStore) -> None:
    assert seen(store) == "hfdcba"
    assert seen(store, ROOT) == "hgfdcba"
    assert seen(store, ascending=True) == "abcdfh"


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        ({"within_projects": {"p"}}, "cba"),
        ({"within_projects": {"p", "hidden"}}, "cba"),
        ({"within_runs": {"r1"}}, "ba"),
        ({"within_runs": {"r1", "r2"}}, "dba"),
        ({"within_runs": {"r3"}}, ""),
        ({"within_fleets": {"f1"}}, "cb"),
        ({"within_runs": {"r1"}, "within_fleets": {"f1"}}, "b"),
        ({"targets": {("run", "r1")}}, "a"),
        ({"targets": {("run", "r1"), ("run", "r2")}}, "da"),
        ({"targets": {("fleet", "f1")}}, "c"),
        ({"targets": {("instance", "i1")}}, "b"),
        ({"targets": {("fleet", "f1"), ("run", "r1")}}, "ca"),
        ({"targets": {("job", "j1")}, "within_runs": {"r1"}}, "b"),
        ({"targets": {("run", "r1")}, "within_fleets": {"f1"}}, ""),
        ({"targets": {("user", "ann")}}, "f"),
        ({"target_types": {"run"}}, "da"),
        ({"target_types": {"instance", "user"}}, "hfb"),
        ({"actors": {"ann"}}, "ha"),
        ({"actors": {None}}, "dcb"),
        ({"actors": {None, "root"}}, "fdcb"),
        ({"within_projects": {"q"}, "actors": {None}}, "d"),
        ({"named": ("run", "r1")}, "a"),
        ({"named": ("fleet", "r1")}, ""),
        ({"named": ("run", 'r"1')}, ""),
        ({"user_name": "ann"}, "ha"),
        ({"user_name": "ann", "by_people": False}, ""),
        ({"by_people": True}, "hfa"),
        ({"by_people": False}, "dcb"),
        ({"limit": 2}, "hf"),
        ({"limit": 2, "ascending": True}, "ab"),
    ],
)
def test_filters(store: MemoryStore, wanted: dict[str, Any], ids: str) -> None:
    frozen = {name: frozenset(value) if isinstance(value, set) else value for name, value in wanted.items()}
    assert seen(store, **frozen) == ids


@pytest.mark.parametrize(("target", "ids"), [(("run", "r1"), "a"), (("fleet", "f1"), "c")])
def test_what_is_said_of_a_run_or_fleet_is_found_whatever_happened_since(
    target: tuple[str, str], ids: str, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MOST", 2)
    assert seen(store, targets=frozenset({target})) == ids


def test_within_a_gateway_is_what_is_said_of_it_and_of_its_machines() -> None:
    store = MemoryStore()
    within = (
        event("a", 1, ("gateway", "g1")),
        event("b", 2, ("instance", "i1"), fleet="g1"),
        event("c", 3, ("run", "r1")),
    )
    store.commit([nouns.put(each) for each in (*within, event("d", 4, ("gateway", "g2")))])
    assert seen(store, within_gateways=frozenset({"g1"})) == "ba"


@pytest.mark.parametrize(
    ("at", "id_", "down", "up"),
    [
        (3, None, "ba", "fh"),
        (3, "d", "cba", "fh"),
        (3, "c", "ba", "dfh"),
        (5, "f", "dcba", "h"),
        (0, None, "", "abcdfh"),
    ],
)
def test_a_page_goes_on_behind_a_moment_or_an_event(
    store: MemoryStore, at: int, id_: str | None, down: str, up: str
) -> None:
    assert seen(store, prev_at=NOW + at, prev_id=id_) == down
    assert seen(store, prev_at=NOW + at, prev_id=id_, ascending=True) == up


def test_more_than_a_page_of_the_store() -> None:
    store = MemoryStore()
    many = [event(f"{number:03d}", number, ("run", "r"), run="r") for number in range(PAGE + 20)]
    store.commit([nouns.put(each) for each in many[:60]])
    store.commit([nouns.put(each) for each in many[60:]])
    found = list_events(store, ANN, PROJECTS, EventFilter(limit=1000, within_runs=frozenset({"r"})))
    assert [each.id for each in found] == [each.id for each in reversed(many)]
    assert len(list_events(store, ANN, PROJECTS, EventFilter())) == PAGE


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.slow
def test_events_that_share_records_are_listed_and_paged_one_by_one(seed: int, limit: int, ascending: bool) -> None:
    """However commits overlap in time: nothing is left out, shown twice or out of order."""
    rng = random.Random(seed)
    store = HistoryStore(MemoryStore(), Retention())
    listed = []
    for commit in range(60):
        began = rng.randrange(0, 20) * SPAN // 4
        some = [
            event(
                f"{commit:02d}{number}",
                began + number * rng.choice((0, 1, SPAN // 3)),
                ("run", "r"),
                run=rng.choice(("", "r")),
                fleet=rng.choice(("", "f", "g")),
            )
            for number in range(rng.randrange(1, 6))
        ]
        store.commit([nouns.put(each) for each in some])
        listed += some
    listed.sort(key=lambda each: (each.at, each.id), reverse=not ascending)
    for only in ({}, {"within_runs": frozenset({"r"})}, {"within_fleets": frozenset({"f", "g"})}):
        wanted = [each for each in listed if (each.run_id or "within_runs" not in only)]
        wanted = [each for each in wanted if (each.fleet_id or "within_fleets" not in only)]
        found: list[Event] = []
        while True:
            last = {"prev_at": found[-1].at, "prev_id": found[-1].id} if found else {}
            page = list_events(store, ANN, PROJECTS, EventFilter(limit=limit, ascending=ascending, **only, **last))
            if not page:
                break
            found += page
        assert [each.id for each in found] == [each.id for each in wanted]


def test_an_event_in_two_streams_is_shown_once(store: MemoryStore) -> None:
    assert seen(store, within_runs=frozenset({"r1", "r2"})).count("b") == 1


def test_actors_that_are_gone(store: MemoryStore) -> None:
    store.commit([nouns.put(ANN)])
    assert deleted_actors(store, EVENTS) == {"root"}
    assert deleted_actors(store, []) == frozenset()
