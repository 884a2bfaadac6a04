"""The lint finds every broken promise: each case is a plan that is right but for one thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.gangs import Gang, GangStatus
from chalicelib.domain.instances import Claim, Instance, InstanceStatus
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import InstanceReason
from chalicelib.domain.workflows import Workflow, WorkflowStatus
from chalicelib.planning.kernel import purchases
from chalicelib.planning.kernel.plan import Plan, Step
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.workflows import DoStep
from chalicelib.planning.placing.invariants import claims, gangs
from chalicelib.planning.placing.queue import decide_queue
from tests.planning.situations.kit import placed
from tests.world import nouns as b
from tests.world.nouns import lint

FLEET, CLOUD = b.fleet("local"), b.fleet("cloud")
SPOT = b.waiting(b.queued("a"), fleets=(b.view(FLEET, b.host(0, FLEET)),))
BUY = b.waiting(b.queued("a"), fleets=(b.view(CLOUD, nodes="0..1"),), offers=(b.offer(),))


def saves(step: Step, **by_kind: Callable[[Any], Any]) -> Step:
    """The step with nouns of these kinds changed; None leaves one out."""
    changed = [by_kind.get(type(noun).__name__, lambda n: n)(noun) for noun in step.saves]
    return replace(step, saves=tuple(noun for noun in changed if noun is not None))


def twice(instance: Any) -> Any:
    other = Claim(job_id="x", run_id="x", blocks=(0,))
    return instance.with_(claims=(*instance.claims, other))


CASES: dict[str, tuple[Any, Callable[[Step], Step], str]] = {
    "a block twice": (SPOT, lambda s: saves(s, Instance=twice), "held by two jobs"),
    "a block that isn't there": (
        SPOT,
        lambda s: saves(s, Instance=lambda i: i.with_(claims=(i.claims[0].with_(blocks=(7,)),))),
        "a block it doesn't have",
    ),
    "a place without a claim": (SPOT, lambda s: saves(s, Instance=lambda i: None), "placed without a claim"),
    "a claim of nothing": (
        SPOT,
        lambda s: saves(s, Instance=lambda i: i.with_(claims=(i.claims[0].with_(blocks=()),))),
        "is assigned 1 blocks but claims 0",
    ),
    "a job with two claims": (
        SPOT,
        lambda s: saves(s, Instance=lambda i: i.with_(claims=i.claims * 2)),
        "holds two claims of one job",
    ),
    "ended by its user though a job has it": (
        SPOT,
        lambda s: saves(s, Instance=lambda i: i.with_(reason=InstanceReason.terminated_by_user)),
        "terminated by a user while a job has a claim",
    ),
    "made without an event": (
        BUY,
        lambda s: replace(s, events=tuple(e for e in s.events if all(t.type != "instance" for t in e.targets))),
        "is created without an event",
    ),
    "made as something else": (
        BUY,
        lambda s: saves(s, Instance=lambda i: i.with_(status=InstanceStatus.busy)),
        "can't be created as busy",
    ),
    "a claim without a job": (SPOT, lambda s: saves(s, Job=lambda j: None), "gets a claim that belongs to no job"),
    "a silent change": (SPOT, lambda s: replace(s, events=()), "without an event"),
    "a jump": (SPOT, lambda s: saves(s, Job=lambda j: j.with_(status=JobStatus.done)), "which has ended"),
    "an impossible change": (
        SPOT,
        lambda s: saves(s, Instance=lambda i: i.with_(status=InstanceStatus.pending)),
        "can't become pending",
    ),
    "idle with claims": (
        SPOT,
        lambda s: saves(s, Instance=lambda i: i.with_(status=InstanceStatus.idle)),
        "holds claims",
    ),
    "saved twice": (SPOT, lambda s: replace(s, saves=(*s.saves, s.saves[0])), "saved twice"),
    "bought without intent": (
        BUY,
        lambda s: saves(s, Instance=lambda i: i.with_(act_until=None)),
        "without a committed act_until",
    ),
    "a host bought": (
        BUY,
        lambda s: saves(s, Instance=lambda i: i.with_(offer=i.offer.with_(backend="remote"))),
        "no backend to buy it from",
    ),
    "ended without being ending": (
        SPOT,
        lambda s: replace(s, effects=(purchases.terminate(s.saves[1], s.saves[1].created_at),)),
        "its status isn't terminating",
    ),
    "bought under another intent": (
        BUY,
        lambda s: replace(s, effects=(replace(s.effects[0], act_until=1),)),
        "an act_until other than the committed one",
    ),
    "asked of another cloud": (
        BUY,
        lambda s: replace(s, effects=(replace(s.effects[0], backend="gcp"),)),
        "its effect goes to gcp",
    ),
    "left to itself": (
        SPOT,
        lambda s: saves(s, Instance=lambda i: i.with_(due_at=None)),
        "nothing will look at it again",
    ),
    "wakes what is nothing": (SPOT, lambda s: replace(s, wake=("cat/1",)), "a known kind of unit"),
    "wakes what isn't its to wake": (SPOT, lambda s: replace(s, wake=("fleet/1",)), "may not wake fleet/1"),
    "added behind the fleet's back": (BUY, lambda s: saves(s, Fleet=lambda f: None), "without committing its fleet"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_broken_promise_is_found(case: str) -> None:
    snapshot, broken, message = CASES[case]
    plan = decide_queue(snapshot)
    assert lint(snapshot, plan) == []
    found = lint(snapshot, Plan((broken(plan.steps[0]),)))
    assert any(message in text for text in found), found


def gang(**changes: Any) -> Gang:
    made = {"id": "g", "run_id": "r", "run_name": "train", "project_id": "p", "nodes": 2, "status": GangStatus.sealed}
    return Gang(**{**made, "began_at": b.NOW, "last_processed_at": b.NOW, "due_at": b.NOW + 1, **changes})


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (gang(places=("a", "a")), "has a machine twice"),
        (gang(places=("a",)), "is sealed with 1 of 2 places"),
        (gang(places=("a", "b"), due_at=None), "is sealed, but nothing will look at it again"),
        (gang(places=("a",), due_at=None, status=GangStatus.undone), "is undone, but nothing will look at it again"),
        (gang(places=("a",), status=GangStatus.gathering), ""),
        (gang(places=("a", "b")), ""),
        (gang(places=(), due_at=None, status=GangStatus.undone), ""),
    ],
)
def test_a_gang_is_sealed_whole_and_looked_at(made: Gang, message: str) -> None:
    found = list(gangs(Step((made,)), {}))
    assert len(found) == bool(message) and all(message in text for text in found)


def test_a_claim_goes_with_its_jobs_place_or_its_job() -> None:
    of = b.job(b.run(), status=JobStatus.running)
    before = b.holding(b.host(), of)
    running = placed(before, of)
    known = {(Instance, before.id): before, (Job, running.id): running}
    for job, lost in (
        (running, True),
        (running.with_(status=JobStatus.failed), False),
        (running.with_(assignment=None), False),
    ):
        found = list(claims(Step((before.with_(claims=()), job)), known))
        assert any("drops the claim of" in text for text in found) is lost


@pytest.mark.parametrize("status", [JobStatus.provisioning, JobStatus.terminating])
def test_a_job_that_leaves_its_place_gives_up_its_claim(status: JobStatus) -> None:
    of = b.job(b.run(), status=status)
    claimed = b.holding(b.host(), of)
    job = placed(claimed, of)
    known = {(Instance, claimed.id): claimed, (Job, job.id): job}
    for left in (job.with_(status=JobStatus.failed), job.with_(assignment=None)):
        assert list(claims(Step((left,)), known)) == [f"job {job.name} leaves {claimed.name}, which keeps its claim"]
        assert list(claims(Step((left, claimed.with_(claims=()))), known)) == []
    assert list(claims(Step((job.with_(message="x"),)), known)) == []


def test_a_fleet_beyond_its_limit_is_found() -> None:
    plan = decide_queue(BUY)
    tight = replace(BUY, fleets=(b.view(CLOUD, nodes="0"),))
    assert any("of at most 0" in text for text in lint(tight, plan))


def test_an_ended_job_is_never_changed() -> None:
    item = b.queued("a")
    done = item.job.with_(status=JobStatus.done)
    snapshot = b.waiting(replace(item, job=done))
    assert lint(snapshot, Plan((Step((done.with_(message="x"),)),))) == ["job a-0-0 has ended (done) but changes"]


FLOW = Workflow(
    id="w",
    project_id="p",
    definition="d",
    name="one",
    subject="instance/i",
    backend="ssh",
    version=1,
    began_at=1,
    step_at=1,
    last_processed_at=1,
    due_at=9,
)
TRIED = FLOW.with_(act_until=9)
ATTEMPT = DoStep("workflow/w", "ssh", 9, "p", "look")


@pytest.mark.parametrize(
    ("step", "found"),
    [
        (Step((TRIED,), effects=(ATTEMPT,)), []),
        (Step((FLOW.with_(due_at=None),)), ["workflow one is running, but nothing will look at it again"]),
        (Step((FLOW,), effects=(ATTEMPT,)), ["workflow/w attempts look without committing it"]),
        (Step(effects=(ATTEMPT,)), ["workflow/w attempts look without committing it"]),
        (Step((TRIED,), effects=(replace(ATTEMPT, act_until=8),)), ["workflow/w attempts look without committing it"]),
    ],
)
def test_a_workflow_is_watched_and_its_attempts_are_committed(step: Step, found: list[str]) -> None:
    assert lint(NounsSnapshot(1, (FLOW,)), Plan((step,))) == found


def test_a_workflow_that_has_ended_attempts_nothing() -> None:
    ended = TRIED.with_(status=WorkflowStatus.done)
    found = lint(NounsSnapshot(1, (ended,)), Plan((Step((ended,), effects=(ATTEMPT,)),)))
    assert found == ["workflow/w attempts look without committing it"]
