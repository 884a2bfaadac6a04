"""What many calls ask for is read with few of the store's, and shows what reading one after the other would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.exports import Export
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.noun import Noun
from chalicelib.domain.runs import Run, RunBody, RunStatus
from chalicelib.domain.services import Scale
from chalicelib.engine.read import SMALL, Reader
from chalicelib.errors import Bug
from chalicelib.store import nouns
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Store
from tests.world import nouns as b
from tests.world.ports import RecordedStore
from tests.world.time import NOW

SPEC = b.job_spec(b.run_spec()).model_dump_json()
END: dict[str, Any] = {"status": JobStatus.failed, "finished_at": NOW}
OVER: dict[str, Any] = {"status": RunStatus.done, "finished_at": NOW}


def body(run: Run, **fields: Any) -> RunBody:
    return RunBody(
        run_id=run.id, deployment_num=run.deployment_num, **{"run_spec": "{}", "job_specs": (SPEC,), **fields}
    )


def live(name: str, **fields: Any) -> tuple[Run, RunBody, Job]:
    run = b.run(name, **fields)
    return run, body(run), b.job(run)


def ended(name: str) -> tuple[Run, RunBody, Job]:
    run = b.run(name, **OVER)
    return run, body(run), b.job(run, **END)


PLAIN = b.run("plain")
CASES: dict[str, Sequence[Run | RunBody | Job]] = {
    "its only job lives": (PLAIN, body(PLAIN), b.job(PLAIN, status=JobStatus.running)),
    "its job was submitted again": (PLAIN, body(PLAIN), b.job(PLAIN, **END), b.job(PLAIN, 1)),
    "earlier submissions were erased": (PLAIN, body(PLAIN), b.job(PLAIN, 7, **END), b.job(PLAIN, 8)),
    "it waits to be submitted again": (PLAIN, body(PLAIN), b.job(PLAIN, **END)),
    "nothing was submitted yet": (PLAIN, body(PLAIN)),
    "its nodes are alike": (PLAIN, body(PLAIN, nodes=(2,)), b.job(PLAIN), b.job(PLAIN, node=1)),
    "its nodes differ": (PLAIN, body(PLAIN, job_specs=(SPEC, SPEC)), b.job(PLAIN), b.job(PLAIN, node=1)),
    "it was changed": (
        changed := PLAIN.with_(deployment_num=1),
        body(PLAIN),
        body(changed, run_spec='{"new": 1}'),
        b.job(PLAIN),
    ),
    "its texts are large": (PLAIN, body(PLAIN, run_spec=f'"{"x" * SMALL}"'), b.job(PLAIN)),
    "it is over": (over := b.run("over", **OVER), body(over), b.job(over, **END)),
    "it is over at the second attempt": (over, body(over), b.job(over, **END), b.job(over, 1, **END)),
    "it is over, on several nodes": (over, body(over, nodes=(2,)), b.job(over, **END), b.job(over, node=1, **END)),
    "it is a service": (
        service := b.run("service", scales=(Scale(group="0", desired=2),)),
        body(service, groups=("0",)),
        b.job(service),
        b.job(service, replica=1),
    ),
}


def stored(*found: Noun) -> MemoryStore:
    store = MemoryStore(clock=lambda: NOW)
    for noun in found:
        store.commit([nouns.put(noun)])
    return store


def read(store: Store, *runs: Run) -> list[Run]:
    found = nouns.find_many(store, Run, [nouns.key_of(run) for run in runs])
    return [run for run in found if run is not None]


@pytest.mark.parametrize("case", CASES)
def test_a_row_shows_the_same_however_it_is_read(case: str) -> None:
    store = stored(*CASES[case], *live("beside"))
    runs = read(store, *(noun for noun in CASES[case] if isinstance(noun, Run)), b.run("beside"))
    reader = Reader(store)
    alone = [Reader(store).run_row(run) for run in runs]
    assert len(alone) == 2 and reader.run_rows(runs) == alone == reader.run_rows(runs)


def test_a_list_of_live_runs_is_one_call_and_reads_no_spec_twice() -> None:
    names = [f"run-{number}" for number in range(20)]
    store = RecordedStore(stored(*(noun for name in names for noun in live(name))))
    runs, reader = read(store, *map(b.run, names)), Reader(store)
    store.calls.clear()
    for records in (40, 20):
        assert [row.run for row in reader.run_rows(runs)] == runs
        ((method, keys_read),) = store.calls
        assert (method, len(keys_read)) == ("get_many", records)
        store.calls.clear()


def test_a_list_of_finished_runs_is_one_call_and_the_next_none() -> None:
    names = [f"run-{number}" for number in range(20)]
    store = RecordedStore(stored(*(noun for name in names for noun in ended(name))))
    runs, reader = read(store, *map(b.run, names)), Reader(store)
    store.calls.clear()
    assert [row.run for row in reader.run_rows(runs)] == runs and [method for method, _ in store.calls] == ["get_many"]
    store.calls.clear()
    assert [len(row.jobs) for row in reader.run_rows(runs)] == [1] * 20 and store.calls == []


def test_a_job_that_has_ended_meanwhile_shows_in_the_next_list() -> None:
    store = stored(*live("train"))
    (run,), reader = read(store, b.run("train")), Reader(store)
    (job,) = reader.run_rows([run])[0].jobs
    ended = job.with_(**END)
    store.commit([nouns.put(ended), nouns.put(b.job(run, 1))])
    assert [each.status for each in reader.run_rows([run])[0].jobs] == [JobStatus.failed, JobStatus.submitted]


# --- fleets


def test_the_fleets_that_a_project_may_use_are_one_read_of_names_and_one_of_fleets() -> None:
    own, gone, lab, everybodys = (b.fleet(name) for name in ("own", "gone", "lab", "everybodys"))
    lab, everybodys = (each.with_(project_id="other") for each in (lab, everybodys))
    shared = Export(id="1", project_id="other", project_name="lab", name="hosts", created_at=NOW, fleets=(lab.id,))
    for_all = shared.with_(id="2", name="all", fleets=(everybodys.id, lab.id), is_global=True)
    store = RecordedStore(
        stored(own, gone.with_(deleted=True), lab, everybodys, shared.with_(importers=(b.PROJECT,)), for_all)
    )
    for fleet in (own, gone):
        store.commit([nouns.pointer(keys.fleet_name(b.PROJECT, fleet.name), fleet.id)])
    store.commit([nouns.pointer(keys.gateway_name(b.PROJECT, "door"), "no fleet")])
    store.commit([nouns.pointer(keys.imported(b.PROJECT, "other", "hosts"), "other/hosts")])
    store.commit([nouns.pointer(keys.for_all("other", "all"), "other/all")])
    reader = Reader(store)
    store.calls.clear()
    own_fleets, others = reader.usable_fleets(b.PROJECT)
    assert [fleet.name for fleet in own_fleets] == ["own"]
    assert {(export.name, fleet.name) for export, fleet in others} == {("all", "everybodys"), ("all", "lab")}
    assert [method for method, _ in store.calls] == ["query", "query", "get_many", "get_many"]
    assert own_fleets == reader.fleets(b.PROJECT) and others == reader.imported_fleets(b.PROJECT)


def test_of_a_node_the_last_submission_counts_and_no_other_nodes() -> None:
    store = MemoryStore()
    run = b.run("again")
    jobs = [b.job(run), b.job(run, 2), b.job(run, node=1), b.job(run, 9, replica=1)]
    store.commit([nouns.put(noun) for noun in (run, *jobs)])
    read = Reader(store)
    found = [read.newest_job(run.id, replica, node) for replica, node in ((0, 0), (0, 1), (1, 0), (1, 1))]
    assert [job and job.id for job in found] == [jobs[1].id, jobs[2].id, jobs[3].id, None]


def test_a_fleet_has_only_the_specs_that_it_was_given() -> None:
    with pytest.raises(Bug, match="fleet f has no spec number 3"):
        Reader(MemoryStore()).fleet_spec("f", 3)


@pytest.mark.parametrize("jobs", [(), (b.job(PLAIN),)])
def test_a_run_has_a_spec_at_its_deployment(jobs: tuple[Job, ...]) -> None:
    with pytest.raises(Bug, match="has no spec at deployment 0"):
        Reader(stored(PLAIN, *jobs)).run_row(PLAIN)
