"""Services in the run's pass: their replicas are submitted, fail and start again each by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import JobReason, RunReason
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.services import Scale
from chalicelib.domain.specs.runs import RunSpec, ServiceConfiguration
from chalicelib.machines.run import BACKOFF
from chalicelib.planning.jobs.jobs import job_specs
from chalicelib.planning.jobs.replica_groups import first_scales, networked, next_scales
from chalicelib.planning.kernel.plan import Note, Plan
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.requirements import combined, requirements_of
from chalicelib.planning.runs.run import decide_run
from chalicelib.planning.runs.snapshot import RunSnapshot
from tests.planning.situations.kit import placed
from tests.world import nouns as b
from tests.world.nouns import lint

RETRY = {"on_events": ["error"], "duration": "1h"}


def service(**config: Any) -> RunSpec:
    config = {"type": "service", "port": 8000, **({} if "groups" in config else {"commands": ["serve"]}), **config}
    return RunSpec.model_validate({"run_name": "chat", "configuration": config})


def snapshot(spec: RunSpec, run: Run, *jobs: Job, now: int = b.NOW, **fields: Any) -> RunSnapshot:
    return RunSnapshot(now, run, spec, job_specs(spec, images=b.Images()), jobs, **fields)


def of(spec: RunSpec, **fields: Any) -> Run:
    return b.run("chat", scales=first_scales(spec.configuration), **{"due_at": b.NOW, **fields})


def decide(found: RunSnapshot) -> Plan:
    plan = decide_run(found)
    assert lint(found, plan) == []
    return plan


def saved(plan: Plan, kind: type) -> list[Any]:
    return [noun for step in plan.steps for noun in step.saves if isinstance(noun, kind)]


def failed(job: Job, exit_status: int = 5) -> Job:
    ended = {"reason": JobReason.container_exited_with_error, "exit_status": exit_status, "finished_at": b.NOW}
    return job.with_(status=JobStatus.failed, due_at=None, **ended)


def test_the_pass_submits_the_replicas_that_the_submission_left() -> None:
    spec = service(groups=[{"name": name, "replicas": 2, "commands": ["x"]} for name in ("a", "b")])
    run = of(spec)
    plan = decide(snapshot(spec, run, b.job(run, replica_group="a")))
    assert [(job.replica_num, job.replica_group) for job in saved(plan, Job)] == [(1, "a"), (2, "b"), (3, "b")]


@pytest.mark.parametrize("serves", [False, True])
def test_without_retry_the_failure_of_one_replica_ends_the_run(serves: bool) -> None:
    spec = service(replicas=2)
    run = of(spec, status=RunStatus.running)
    other, host = b.job(run, replica=1), b.host()
    if serves:
        other, host = placed(host, other.with_(status=JobStatus.running, ready_at=b.NOW)), b.holding(host, other)
    plan = decide(snapshot(spec, run, failed(b.job(run)), other, instances={host.id: host}))
    (ended,) = [noun for noun in saved(plan, Run) if noun.reason is not None]
    assert (ended.reason, ended.message) == (RunReason.job_failed, "chat-0-0 exited (5)")


def test_with_retry_only_that_replica_starts_again() -> None:
    spec = service(replicas=2, retry=RETRY)
    run = of(spec, status=RunStatus.running)
    jobs = failed(b.job(run, replica=1)), b.job(run)
    plan = decide(snapshot(spec, run, *jobs))
    (run,) = saved(plan, Run)
    assert run.reason is None
    assert [(retry.replica, retry.resume_at) for retry in run.retries] == [(1, b.NOW + BACKOFF[0])]
    again = decide(snapshot(spec, run, *jobs, now=b.NOW + BACKOFF[0]))
    (job,) = [noun for noun in saved(again, Job) if noun.submission_num]
    assert (job.replica_num, job.submission_num, job.replica_group) == (1, 1, "0")


def test_a_replica_is_judged_by_the_spec_of_its_own_deployment() -> None:
    """The new version is retried, the old one wasn't: it began under other rules, and is replaced at once."""
    old, new = service(), service(retry=RETRY)
    run = of(new, status=RunStatus.running, deployment_num=1)
    former = {0: job_specs(old, images=b.Images())}
    plan = decide(snapshot(new, run, failed(b.job(run)), former=former))
    assert [(job.submission_num, job.deployment_num) for job in saved(plan, Job)] == [(1, 1)]
    plan = decide(snapshot(new, run, failed(b.job(run, deployment_num=1)), former=former))
    assert not saved(plan, Job)
    assert [noun.retries[0].resume_at for noun in saved(plan, Run)] == [b.NOW + BACKOFF[0]]


def test_a_service_that_may_have_none_begins_with_none() -> None:
    scaling = {"metric": "rps", "target": 1}
    assert first_scales(service(replicas="0..2", scaling=scaling).configuration) == (Scale(group="0", desired=0),)
    groups = [{"replicas": "2..3", "commands": ["x"], "scaling": scaling}, {"replicas": 1, "commands": ["y"]}]
    assert [scale.desired for scale in first_scales(service(groups=groups).configuration)] == [2, 1]
    assert first_scales(b.run_spec().configuration) == ()


def test_a_change_keeps_the_replicas_there_are_as_far_as_it_allows() -> None:
    scaling = {"metric": "rps", "target": 1}
    now = (Scale(group="0", desired=3, at=7, why="busy"),)
    assert next_scales(service(replicas="1..5", scaling=scaling).configuration, now) == now
    for replicas, desired in (("4..5", 4), ("0..2", 2), (1, 1)):
        more = {} if isinstance(replicas, int) else {"scaling": scaling}
        (scale,) = next_scales(service(replicas=replicas, **more).configuration, now)
        assert (scale.desired, scale.at, scale.why) == (desired, 7, "its configuration was changed")
    groups = [{"name": "new", "replicas": 2, "commands": ["x"]}]
    assert next_scales(service(groups=groups).configuration, now) == (Scale(group="new", desired=2),)


def test_a_schedule_starts_as_many_replicas_as_there_should_be() -> None:
    spec = service(replicas=2, schedule={"cron": ["0 8 * * *"]})
    at = b.NOW + 60 * b.SECOND
    run = of(spec, status=RunStatus.pending, resume_at=at)
    assert saved(decide(snapshot(spec, run)), Job) == []
    plan = decide(snapshot(spec, run, now=at))
    assert [(job.replica_num, job.submission_num) for job in saved(plan, Job)] == [(0, 0), (1, 0)]
    (begun,) = {noun.status for noun in saved(plan, Run)}
    assert begun is RunStatus.submitted


def test_another_projects_fleet_takes_no_group_that_could_take_over_its_hosts() -> None:
    more: tuple[dict[str, Any], ...] = ({}, {"docker": True}, {"privileged": True})
    spec = service(groups=[{"replicas": 1, "commands": ["x"], **each} for each in more])
    shared = replace(b.view(b.fleet("lab"), nodes="0..2"), imported=True)
    plain, *others = (combined(requirements_of(spec, each), shared) for each in job_specs(spec, images=b.Images()))
    assert isinstance(plain, Query) and len(others) == 2
    for note in others:
        assert isinstance(note, Note) and "takes no run with `privileged` or `docker`" in note.text


def test_in_a_service_with_a_router_each_group_has_its_part_and_only_the_router_is_asked_for_a_word() -> None:
    front = {"name": "front", "replicas": 1, "commands": ["smg"], "router": {"type": "smg"}}
    groups = [front, {"name": "gpu", "replicas": 2, "commands": ["serve"]}]
    router, worker = job_specs(service(model="m", groups=groups), images=b.Images())
    assert [router.routing, worker.routing] == ["router", "worker"]
    assert len(router.probes) == 1 and worker.probes == ()
    (alone,) = job_specs(service(model="m"), images=b.Images())
    assert alone.routing is None and len(alone.probes) == 1


ADDRESSED = "serve ${{ groups[0].replicas[0].IP_ADDRESS }}"


@pytest.mark.parametrize(
    ("groups", "together"),
    [
        ([{"name": "a"}, {"name": "b"}], False),
        ([{"name": "a"}, {"name": "b", "commands": [ADDRESSED]}], True),
        ([{"name": "a", "router": {"type": "smg"}}, {"name": "b"}], True),
    ],
)
def test_replicas_that_are_told_of_others_or_have_a_router_reach_each_other(groups: Any, together: bool) -> None:
    written = [{"replicas": 1, "commands": ["serve"], **group} for group in groups]
    config = ServiceConfiguration.model_validate({"type": "service", "port": 80, "groups": written})
    assert networked(config) is together
