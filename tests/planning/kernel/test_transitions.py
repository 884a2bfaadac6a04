"""What a draft does with a noun beyond its status."""

from __future__ import annotations

import pytest

from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.reasons import JobReason
from chalicelib.planning.kernel.transitions import Draft
from tests.world import nouns as b


def test_whoever_holds_no_place_gives_none_back() -> None:
    draft, instance = Draft(b.NOW), b.machine(0, status=InstanceStatus.idle)
    assert draft.release(instance, "somebody-elses") is instance
    assert draft.empty


@pytest.mark.parametrize("owner", [b.PROJECT, "lab"])
def test_a_place_given_back_is_there_for_the_jobs_of_its_project_too(owner: str) -> None:
    job = b.job(b.run("train"), status=JobStatus.terminating, reason=JobReason.done_by_runner)
    draft = Draft(b.NOW)
    draft.finish_job(job, b.host(0).with_(project_id=owner))
    assert {unit for unit in draft.step().wake if unit.startswith("queue/")} == {f"queue/{b.PROJECT}", f"queue/{owner}"}
