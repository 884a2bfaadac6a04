"""What a project looked like: as its lists said then, whatever has become of it, and however it is put together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.api import dispatch
from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, HOUR, MINUTE, SECOND, iso
from chalicelib.domain.moments import EVERY, RENEWED, Moment, State
from chalicelib.engine.moments import events_between, present, store_moment
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.store.port import Delete
from tests.api.v1.test_costs import FLEET, TASK, Later, project_id
from tests.scenarios.stages import Virtual
from tests.world.embedded import EmbeddedSite
from tests.world.site import ADMIN

pytestmark = pytest.mark.slow
FAILS = "type: task\nname: broken\ncommands: [sleep 30, exit 3]\nresources: {gpu: 1}\n"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Virtual]:
    site, home = EmbeddedSite("moments", tmp_path / "data"), tmp_path / "home"
    home.mkdir()
    for name, text in (("fleet", FLEET), ("task", TASK.replace("3000", "300")), ("broken", FAILS)):
        (home / f"{name}.dstack.yml").write_text(text)
    made = Virtual(site, home, "main")
    apply(made, "fleet")
    yield made
    site.close()


def apply(stage: Virtual, name: str) -> None:
    out, code = stage.dstack(["apply", "-f", f"{name}.dstack.yml", "-y", *(["-d"] if name != "fleet" else [])])
    assert code == 0, out


def get(stage: Virtual, url: str, status: int = 200) -> Any:
    found, body = stage.site.request("GET", f"/api/v1/projects/main/{url}", {"Authorization": f"Bearer {ADMIN}"}, b"")
    assert found == status, body
    return json.loads(body)


def read(stage: Virtual) -> Any:
    return stage.site.root.plane.read  # type: ignore[attr-defined]


def now(stage: Virtual) -> int:
    return int(stage.site.root.ports.clock.now())  # type: ignore[attr-defined]


def state(stage: Virtual, at: int) -> Any:
    return get(stage, f"state?at={iso(at).replace('+00:00', 'Z')}")


def live(stage: Virtual) -> State:
    return whole_seconds(present(read(stage), project_id(stage), now(stage)))


def told(stage: Virtual) -> State:
    """What the history says, from its beginning."""
    return whole_seconds(State().after(events_between(read(stage), project_id(stage), 0, now(stage))))


def whole_seconds(state: State) -> State:
    """The events of a commit are microseconds apart, and a record has one time for all of them."""
    runs = {
        id_: run.with_(
            submitted_at=run.submitted_at // SECOND, finished_at=run.finished_at and run.finished_at // SECOND
        )
        for id_, run in state.runs.items()
    }
    instances = {id_: each.with_(created_at=each.created_at // SECOND) for id_, each in state.instances.items()}
    return state.with_(runs=runs, instances=instances)


def moments(stage: Virtual) -> list[Moment]:
    place = keys.moment(project_id(stage), 0)
    return [nouns.read(Moment, each) for each in all_of(read(stage).store, "main", place.pk)]


def store(stage: Virtual, later: int = 0) -> bool:
    return store_moment(read(stage), Later(now(stage) + later), project_id(stage))


def test_the_history_tells_what_the_records_have_at_every_step_of_a_run(stage: Virtual) -> None:
    apply(stage, "task")
    apply(stage, "broken")
    seen = set()
    for seconds in (0.05, 1, 5, 30, 60, 300, 400, 700):
        stage.site.time.pass_(seconds)
        is_, was_told = live(stage), told(stage)
        assert was_told == is_
        seen |= {run.status for run in is_.runs.values()} | {each.status for each in is_.instances.values()}
    assert seen >= {"running", "done", "failed", "busy", "idle"} and not is_.instances


def test_an_instant_shows_what_was_then(stage: Virtual) -> None:
    before = now(stage)
    stage.site.time.pass_(10)
    apply(stage, "task")
    stage.site.time.pass_(60)
    during = now(stage)
    stage.site.time.pass_(1500)
    assert state(stage, before)["runs"] == [] and state(stage, before)["fleets"][0]["name"] == "pool"
    found = state(stage, during)
    (run,), (machine,) = found["runs"], found["instances"]
    assert (run["name"], run["user"], run["status"], run["finished_at"]) == ("train", "admin", "running", None)
    assert run["jobs"][0]["instance"] == machine["name"] == "pool-0" and run["price_per_hour_usd"] == 0.46
    assert (machine["fleet"], machine["status"], machine["gpu"], machine["gpus"]) == ("pool", "busy", "T4", 1)
    late = state(stage, now(stage))
    assert late["instances"] == [] and late["runs"][0]["status"] == "done" and late["runs"][0]["finished_at"]


def test_from_a_stored_moment_it_is_the_same_as_from_the_beginning(stage: Virtual) -> None:
    apply(stage, "task")
    stage.site.time.pass_(200)
    instants = []
    assert store(stage)
    for _ in range(8):
        stage.site.time.pass_(240)
        instants.append(now(stage))
        store(stage)
    stored = moments(stage)
    assert 2 <= len(stored) <= 4
    with_them = [state(stage, at) for at in instants]
    read(stage).store.commit([Delete(nouns.key_of(each)) for each in stored])
    assert [state(stage, at) for at in instants] == with_them


def test_one_is_stored_every_quarter_of_an_hour_if_something_happened(stage: Virtual) -> None:
    assert store(stage) and not store(stage), "it is too soon"
    assert not store(stage, EVERY + 3 * MINUTE), "nothing has happened"
    assert store(stage, RENEWED + 3 * MINUTE), "so that there always is one"
    stage.site.time.pass_(60)
    apply(stage, "task")
    stage.site.time.pass_(60)
    first = moments(stage)[0].at
    read(stage).store.commit([Delete(nouns.key_of(each)) for each in moments(stage)[1:]])
    assert store(stage, first + EVERY + 3 * MINUTE - now(stage))
    assert [run.name for run in moments(stage)[-1].state().runs.values()] == ["train"]


def test_a_turn_of_the_erasing_stores_it(stage: Virtual) -> None:
    stage.site.root.erase()  # type: ignore[attr-defined]
    assert len(moments(stage)) == 1


def test_a_turn_erases_before_it_keeps_the_books_which_may_outlast_it(stage: Virtual) -> None:
    root, stored = stage.site.root, []  # type: ignore[attr-defined]
    eraser = root.eraser

    class Watched:
        def run(self) -> Any:
            stored.append(len(moments(stage)))
            return eraser.run()

    root.eraser = Watched()
    root.erase()
    assert stored == [0] and len(moments(stage)) == 1


def test_a_final_answer_may_be_kept_and_a_new_one_may_not(stage: Virtual) -> None:
    past = now(stage)
    stage.site.time.pass_(400)
    assert state(stage, past)["final"] and not state(stage, now(stage))["final"]
    plane = stage.site.root.plane  # type: ignore[attr-defined]
    for at, kept in ((past, True), (now(stage), False)):
        headers = {"authorization": f"Bearer {ADMIN}"}
        asked = dispatch.Request("GET", "/api/v1/projects/main/state", {"at": iso(at)}, headers, b"")
        assert ("immutable" in dispatch.answer(plane, asked).headers["Cache-Control"]) == kept


def test_where_the_history_doesnt_reach_is_said(stage: Virtual) -> None:
    assert "is in the future" in json.dumps(get(stage, "state?at=2039-01-01T00:00:00Z", 422))
    assert "no longer kept" in json.dumps(get(stage, "state?at=2020-01-01T00:00:00Z", 404))
    assert "at" in json.dumps(get(stage, "state", 422))


def test_marks_are_what_failed_and_what_was_changed(stage: Virtual) -> None:
    apply(stage, "broken")
    stage.site.time.pass_(120)
    (mark,) = get(stage, "marks")["items"]
    assert (mark["kind"], mark["target"]["name"]) == ("failure", "broken") and "failed" in mark["text"]
    assert get(stage, f"marks?until={iso(now(stage) - HOUR).replace('+00:00', 'Z')}")["items"] == []
    since = iso(now(stage) - 3 * DAY).replace("+00:00", "Z")
    assert "at most 48 hours" in json.dumps(get(stage, f"marks?since={since}", 422))
    assert "begins after its end" in json.dumps(get(stage, "marks?since=2049-01-01T00:00:00Z", 422))
    assert "begins after its end" in json.dumps(get(stage, f"marks?since=2049-01-01T00:00:00Z&until={since}", 422))
