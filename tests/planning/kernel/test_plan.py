"""A plan that writes nothing and acts on nothing has found nothing to do."""

from __future__ import annotations

import pytest

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import HOUR
from chalicelib.planning.kernel.plan import Plan, Step
from chalicelib.planning.kernel.purchases import Create, Describe, DescribeSeveral, batch_creates, batch_describes
from chalicelib.planning.runs.agent_reports import over_quota
from tests.world import nouns as b


@pytest.mark.parametrize(
    ("steps", "empty"),
    [
        ((), True),
        ((Step(wake=("run/1",)),), True),
        ((Step(), Step(saves=(b.run(),))), False),
        ((Step(effects=(Describe("instance/1", "aws", 0),)),), False),
    ],
)
def test_what_an_empty_plan_is(steps: tuple[Step, ...], empty: bool) -> None:
    assert Plan(steps).empty is empty


@pytest.mark.parametrize(("batch", "calls"), [(None, 5), (1, 5), (2, 3), (8, 1)])
def test_purchases_are_made_in_as_few_calls_as_their_backend_can(batch: int | None, calls: int) -> None:
    """One that nobody knows any more creates one at a time."""
    facts = {} if batch is None else {"aws": BackendFacts(name="aws", batch=batch)}
    step = Step(effects=tuple(Create(f"instance/{number}", "aws", 0) for number in range(5)))
    assert len(batch_creates(step, facts).effects) == calls


def test_looks_are_put_together_as_far_as_one_call_answers_them() -> None:
    """Those of one account; each is dropped as late as the first of them. Anything else is as it was."""
    batchable = [Describe(f"instance/{n}", "aws", 100 - n, "p", together=2) for n in range(3)]
    others = [Describe("instance/q", "aws", 0, "q", together=2), Describe("instance/r", "slow", 0, "p")]
    bought = Create("instance/s", "aws", 0, "p")
    found = set(batch_describes([batchable[0], others[0], bought, batchable[1], others[1], batchable[2]]))
    together = DescribeSeveral("instance/0", "aws", 99, "p", ("instance/0", "instance/1"))
    assert found == {together, batchable[2], *others, bought}


@pytest.mark.parametrize(
    ("ran", "stored", "over"),
    [
        (None, 100, False),
        (None, 101, True),
        (HOUR - 1, 100, False),
        (HOUR - 1, 101, True),
        (HOUR, 200, False),
        (HOUR, 201, True),
    ],
)
def test_a_job_may_log_so_much_for_each_hour_that_it_began(ran: int | None, stored: int, over: bool) -> None:
    job = b.job(b.run()).with_(running_at=None if ran is None else b.NOW - ran)
    assert over_quota(job, stored, 100, b.NOW) is over
