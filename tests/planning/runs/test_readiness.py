"""When a replica may get requests, as far as its agent's reports say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reports import TaskReport
from chalicelib.planning.runs.readiness import apply_report
from tests.world import nouns as b


def spec_of(*needed: int, unwatched: bool = False) -> JobSpec:
    probes = tuple({"type": "http", "url": f"/{at}", "ready_after": count} for at, count in enumerate(needed))
    return JobSpec.model_validate(
        {
            "job_name": "app-0-0",
            "commands": ["app"],
            "env": {},
            "image_name": "image",
            "requirements": {"resources": {}},
            "service_port": 8000,
            "probes": probes,
            "unwatched": unwatched,
        }
    )


def replica(**changes: Any) -> Job:
    return b.job(b.run("app"), status=JobStatus.running).with_(**changes)


def after_report(job: Job, spec: JobSpec, now: int = 7, **fields: Any) -> Job:
    report = TaskReport.model_validate({"id": job.id, "state": "running", **fields})
    return apply_report(job, spec, report, now)


def test_without_probes_it_is_ready_once_it_listens() -> None:
    job = after_report(replica(), spec_of(), listens=False)
    assert job.ready_at is None and not job.listens
    job = after_report(job, spec_of(), listens=True, now=9)
    assert job.ready_at == 9 and job.listens


def test_with_an_empty_list_of_probes_it_is_ready_once_it_runs() -> None:
    assert after_report(replica(), spec_of(unwatched=True), listens=False).ready_at == 7


def test_every_probe_must_succeed_as_often_as_it_should() -> None:
    spec = spec_of(1, 3)
    job = after_report(replica(), spec, listens=True)
    assert (job.probes, job.ready_at) == ((0, 0), None)
    job = after_report(job, spec, listens=True, probes=[1, 2])
    assert (job.probes, job.ready_at) == ((1, 2), None)
    job = after_report(job, spec, listens=True, probes=[9, 3], now=11)
    assert (job.probes, job.ready_at) == ((1, 3), 11), "counted no further than it matters"


def test_the_same_again_is_the_same_job() -> None:
    job = after_report(replica(), spec_of(2), listens=True, probes=[2], host_port=8000, queue=4)
    assert after_report(job, spec_of(2), listens=True, probes=[5], host_port=8000, queue=4, now=99) is job
    assert after_report(job, spec_of(2), listens=False, now=99) is job, "an agent that starts again looks first"


def test_an_engine_that_says_nothing_any_more_has_an_unknown_queue() -> None:
    job = after_report(replica(), spec_of(), listens=True, queue=4)
    assert job.queue == 4
    assert after_report(job, spec_of(), listens=True).queue is None


def test_an_agent_of_an_earlier_version_looks_at_nothing() -> None:
    job = after_report(replica(), spec_of(2))
    assert (job.ready_at, job.listens, job.probes) == (7, False, (0,))


def test_streaks_of_other_probes_than_it_has_count_for_nothing() -> None:
    assert after_report(replica(), spec_of(1), listens=True, probes=[1, 1]).ready_at is None


def test_its_address_on_its_host_is_kept() -> None:
    report = TaskReport.model_validate({"id": "t", "state": "running", "listens": True, "address": "172.17.0.2"})
    assert apply_report(replica(), spec_of(), report, 1).address == "172.17.0.2"


@pytest.mark.parametrize(
    "wrong",
    [
        {"probes": [-1]},
        {"probes": [10**6]},
        {"probes": [0] * 11},
        {"host_port": 0},
        {"host_port": 65_536},
        {"address": "localhost"},
        {"address": "fe80::1%eth0"},
        {"queue": -1},
        {"listens": "perhaps"},
    ],
)
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        TaskReport.model_validate({"id": "t", "state": "running", **wrong})


REPORTS = st.fixed_dictionaries(
    {},
    optional={
        "listens": st.booleans(),
        "probes": st.lists(st.integers(0, 10_000), max_size=3),
        "queue": st.integers(0, 9),
        "host_port": st.integers(1, 65_535),
    },
)


@given(st.lists(st.integers(1, 4), max_size=3), st.booleans(), st.lists(REPORTS, max_size=8))
@pytest.mark.slow
def test_ready_comes_once_and_stays_and_no_streak_passes_its_end(
    needed: list[int], unwatched: bool, reports: list[dict[str, Any]]
) -> None:
    spec, job = spec_of(*needed, unwatched=unwatched), replica()
    for now, fields in enumerate(reports, start=1):
        before, job = job, after_report(job, spec, now=now, **fields)
        assert before.ready_at is None or job.ready_at == before.ready_at
        assert job.listens >= before.listens
        assert len(job.probes) == len(needed) and all(map(lambda streak, most: streak <= most, job.probes, needed))
        if job.ready_at == now and fields.get("listens") is not None:
            assert list(job.probes) == needed and (unwatched or job.listens)
        assert after_report(job, spec, now=99, **fields) is job, "a repeated report changes nothing"
