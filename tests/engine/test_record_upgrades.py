"""What older versions stored is brought up to date, once and bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from chalicelib.domain import keys
from chalicelib.domain.closings import Closing
from chalicelib.domain.events import Event, EventType, Target
from chalicelib.domain.fleets import FleetBody
from chalicelib.domain.instants import DAY, MINUTE
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.keys import Key
from chalicelib.domain.runs import Run, RunBody
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.tenants import Archive
from chalicelib.engine.record_upgrades import BATCH, PAGES, RecordUpgrader, UpgradeProgress
from chalicelib.store import nouns, sealed_specs
from chalicelib.store.port import Delete, Put, Record
from tests.api.rig import Rig, fleet, submit, task
from tests.api.test_fleets import add_instance, create
from tests.api.test_runs import finish, run_of
from tests.engine.test_erase_fleets import end, end_fleet
from tests.engine.test_erase_unused import archive, closed, pass_days, settle, turn
from tests.store.test_sealed_specs import FLEET
from tests.world.time import NOW

PASSWORD = "hush-hush"
PRIVATE = {"image": "i", "registry_auth": {"username": "me", "password": PASSWORD}}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig.at(tmp_path)
    yield made
    made.world.plane.store.close()


def renew(rig: Rig) -> int:
    """Turns until all is done."""
    for number in range(1, 50):
        if RecordUpgrader(rig.world.plane.store, rig.world.plane.seal, rig.world.clock).run().done:
            return number
    raise AssertionError("it never ends")


def clear(rig: Rig, name: str = "hello", **spec: Any) -> Run:
    """A run whose password an older version stored in clear."""
    run = run_of(rig, submit(rig, task(name, **{**PRIVATE, **spec}))["id"])
    body = body_of(rig, run)
    opened = sealed_specs.run_spec(rig.world.plane.seal, run.id, body.run_spec)
    job = orjson.loads(body.job_specs[0]) | {"registry_auth": PRIVATE["registry_auth"]}
    rig.save(body.with_(run_spec=opened.model_dump_json(), job_specs=(orjson.dumps(job).decode(),)))
    assert PASSWORD in text_of(rig, run)
    return run


def body_of(rig: Rig, run: Run) -> RunBody:
    body = nouns.find(rig.world.plane.store, RunBody, keys.run_body(run.id, 0))
    assert body is not None
    return body


def text_of(rig: Rig, run: Run) -> str:
    return body_of(rig, run).model_dump_json()


def outdated(rig: Rig, key: Key, **places: Any) -> None:
    """The record as an older version placed it."""
    record = rig.record(key)
    rig.world.plane.store.commit([Put(replace(record, **places), None)])


def test_a_password_that_was_stored_in_clear_is_sealed_and_still_opens(rig: Rig) -> None:
    run = clear(rig)
    renew(rig)
    assert PASSWORD not in text_of(rig, run)
    opened = sealed_specs.run_spec(rig.world.plane.seal, run.id, body_of(rig, run).run_spec)
    assert opened.configuration.registry_auth is not None
    assert opened.configuration.registry_auth.password == PASSWORD
    assert rig.ok("P/runs/get_plan", {"run_spec": task(**PRIVATE)})["action"] == "update"
    stored = orjson.loads(body_of(rig, run).job_specs[0])
    sent = sealed_specs.opened(rig.world.plane.seal, JobSpec, stored, sealed_specs.of_run(run.id))
    assert sent["registry_auth"]["password"] == PASSWORD


def test_events_that_were_stored_as_sentences_are_listed_beside_those_of_today(rig: Rig) -> None:
    """Nothing renews them: each reader takes them as they are."""
    run = run_of(rig, submit(rig, task("hello"))["id"])
    target = {"type": "run", "id": run.id, "name": run.name}
    old = {"id": "0", "project_id": rig.project.id, "at": NOW - DAY, "message": "made, waits", "run_id": run.id}
    key = keys.event(rig.project.id, NOW - DAY, "0")
    for number, targets in enumerate(([target], [])):  # the first had none
        body = orjson.dumps({**old, "id": str(number), "targets": targets})
        place = key._replace(sk=key.sk.removesuffix("0") + str(number))
        record = Record(place, 1, body, gsi1=(keys.run_events(run.id), place.sk))
        rig.world.plane.store.commit([Put(record, None)])
    assert renew(rig)
    within = rig.ok("/api/events/list", {"within_runs": [run.id], "ascending": True})
    assert [each["message"] for each in within][:3] == ["made, waits", "made, waits", "submitted"]
    sent = rig.ok("P/events/changes", {"prev_recorded_at": "2020-01-01T00:00:00Z"})
    assert [each["message"] for each in sent][:2] == ["made, waits", "made, waits"]
    assert sent[0]["target"] == target and sent[1]["target"]["type"] == "project"


def test_what_is_sealed_or_a_reference_stays_as_it_is(rig: Rig) -> None:
    rig.ok("P/secrets/create_or_update", {"name": "key", "value": "v"})
    refers = {"registry_auth": {"username": "me", "password": "${{ secrets.key }}"}}
    specs = {"one": PRIVATE, "two": {**PRIVATE, **refers}}
    runs = [run_of(rig, submit(rig, task(name, **spec))["id"]) for name, spec in specs.items()]
    before = [(body_of(rig, run).version, text_of(rig, run)) for run in runs]
    renew(rig)
    assert [(body_of(rig, run).version, text_of(rig, run)) for run in runs] == before


def test_the_keys_of_a_fleet_are_sealed(rig: Rig) -> None:
    rig.ok("P/fleets/apply", {"plan": {"spec": fleet("lab")}, "force": False})
    found = nouns.find_target(rig.world.plane.store, keys.fleet_name(rig.project.id, "lab"))
    assert found is not None
    body = nouns.find(rig.world.plane.store, FleetBody, keys.fleet_body(found[0], 0))
    assert body is not None
    rig.save(body.with_(spec=orjson.dumps(FLEET).decode()))
    renew(rig)
    after = rig.world.again(body)
    assert "hush" not in after.spec and "BEGIN" not in after.spec
    opened = sealed_specs.fleet_spec(rig.world.plane.seal, found[0], after.spec)
    assert opened == FleetSpec.model_validate(FLEET)


def test_runs_that_ended_before_there_was_an_end_for_them_are_erased(rig: Rig) -> None:
    recent, gone = submit(rig, task("kept"))["id"], submit(rig, task("gone"))["id"]
    live = submit(rig, task("live"))["id"]
    for run_id in (recent, gone):
        finish(rig, run_id)
    rig.ok("P/runs/delete", {"runs_names": ["gone"]})
    rig.save(run_of(rig, gone).with_(deleted_at=None))
    for run_id in (recent, gone):
        outdated(rig, keys.run(run_id), gsi2=None)
    before = rig.record(keys.run(live))
    rig.world.clock.at += 40 * DAY
    assert turn(rig).runs == []
    renew(rig)
    done = turn(rig)
    assert (done.runs, done.logs) == ([gone], [recent])
    assert rig.record(keys.run(live)) == before


def test_fleets_and_instances_that_ended_before_there_was_an_end_for_them_are_erased(rig: Rig) -> None:
    made = create(rig, fleet("lab"))
    gone, live = end(rig, add_instance(rig, made)), add_instance(rig, made, 1)
    ended = end_fleet(rig, made)
    for key in (keys.instance(gone.id), keys.fleet(ended.id)):
        outdated(rig, key, gsi1=None, gsi2=None)
    before = rig.record(keys.instance(live.id))
    pass_days(rig, 40)
    assert turn(rig).fleets == []
    renew(rig)
    done = turn(rig)
    assert (done.instances, done.fleets) == ([gone.id], [ended.id])
    assert rig.record(keys.instance(live.id)) == before


def test_a_project_that_was_deleted_before_there_were_closings_is_cleared(rig: Rig) -> None:
    project = closed(rig)
    store = rig.world.plane.store
    store.commit([Delete(keys.closing(project.id))])
    pass_days(rig, 100)
    assert turn(rig).projects == []
    renew(rig)
    closing = nouns.find(store, Closing, keys.closing(project.id))
    assert closing is not None and closing.due_at is not None, "what may still run of it is ended first"
    settle(rig, project)
    pass_days(rig, 1)
    assert [turn(rig).projects for _ in range(3)] == [[], [project.id], []]
    assert [record.key.sk for record in store.query("main", f"project/{project.id}").records] == ["status"]
    assert nouns.find(store, Closing, keys.closing(rig.project.id)) is None, "a project that lives gets none"


def test_a_project_that_was_cleared_before_its_record_could_go_is_forgotten(rig: Rig) -> None:
    project = closed(rig)
    settle(rig, project)
    pass_days(rig, 1)
    for _ in range(3):
        turn(rig)
    outdated(rig, keys.closing(project.id), gsi1=None)
    pass_days(rig, 90)
    assert turn(rig).forgotten == []
    renew(rig)
    turn(rig)  # its events
    assert turn(rig).forgotten == [project.id]


def test_an_archive_without_an_entry_counts_from_now(rig: Rig) -> None:
    sent = archive(rig)
    found = nouns.find(rig.world.plane.store, Archive, keys.archive(sent["id"]))
    assert found is not None
    rig.save(found.with_(used_at=0, submitted=True))  # as all were before it was known
    outdated(rig, keys.archive(sent["id"]), gsi1=None)
    pass_days(rig, 100)
    assert turn(rig).archives == []
    renew(rig)
    pass_days(rig, 29.9)
    assert turn(rig).archives == []
    pass_days(rig, 0.1)
    assert turn(rig).archives == [sent["id"]]


@pytest.mark.slow
def test_it_goes_through_all_there_is_in_bounded_turns_and_once(rig: Rig) -> None:
    other = Rig(rig.world, rig.another_project("other"))
    runs = [clear(rig), clear(other)]
    targets = (Target(type="project", id=rig.project.id, name="main"),)
    many = [
        Event(id=f"e{n}", project_id=rig.project.id, at=NOW - n, type=EventType.changed, targets=targets)
        for n in range(1, BATCH * PAGES + 1)
    ]
    for start in range(0, len(many), 100):
        rig.save(*many[start : start + 100])
    assert renew(rig) == 2, "the events are more than a turn takes"
    assert all(PASSWORD not in text_of(rig, run) for run in runs)
    late = clear(rig, "late")
    assert renew(rig) == 1 and PASSWORD in text_of(rig, late), "new records are written as they should be"


def test_a_turn_that_takes_long_begins_no_other_page(rig: Rig) -> None:
    runs = [clear(rig, "one"), clear(rig, "two")]
    plane, clock = rig.world.plane, rig.world.clock

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(plane.store, name)

        def scan(self, after: Key | None = None, *, limit: int = 500) -> list[Record]:
            clock.at += MINUTE
            return plane.store.scan(after, limit=2)

    store: Any = Slow()
    turns = 0
    while not RecordUpgrader(store, plane.seal, clock).run().done:
        turns += 1
    assert turns > 5 and all(PASSWORD not in text_of(rig, run) for run in runs)


def test_a_restart_continues_where_it_was(rig: Rig) -> None:
    run, store = clear(rig), rig.world.plane.store
    rig.save(UpgradeProgress(after=keys.run_body(run.id, 0)))
    renew(rig)
    assert PASSWORD in text_of(rig, run), "that one was behind it"
    rig.save(rig.world.again(UpgradeProgress()).with_(after=None, done=False))
    renew(rig)
    assert PASSWORD not in text_of(rig, run)
    stored = nouns.find(store, UpgradeProgress, keys.renewal(UpgradeProgress.form))
    assert stored is not None and stored.done
