"""The status item of a run: small, and records of earlier releases mean what they meant."""

from __future__ import annotations

import orjson
import pytest

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY
from chalicelib.domain.reasons import RunReason
from chalicelib.domain.runs import ReplicaRetry, Run, RunStatus
from chalicelib.store import nouns
from chalicelib.store.port import Record
from tests.world import nouns as b

OLD = {"id": "r", "project_id": "p", "user_id": "u", "user_name": "ann", "name": "n", "submitted_at": 1}
OLD |= {"last_processed_at": 1, "status": "pending"}


@pytest.mark.parametrize(
    ("stored", "retries"),
    [
        ({}, ()),
        ({"resubmission_attempt": 0}, ()),
        ({"resubmission_attempt": 2, "resume_at": 9 * DAY}, (ReplicaRetry(attempt=2, resume_at=9 * DAY),)),
        ({"resubmission_attempt": 3}, (ReplicaRetry(attempt=3),)),  # submitted again, and without a place so far
        ({"retries": [{"replica": 4, "attempt": 1}]}, (ReplicaRetry(replica=4, attempt=1),)),
    ],
)
def test_a_run_that_counted_its_own_attempts_still_parses(
    stored: dict[str, int], retries: tuple[ReplicaRetry, ...]
) -> None:
    run = nouns.read(Run, Record(keys.run("r"), 1, orjson.dumps(OLD | stored)))
    assert run.retries == retries
    assert run.resubmission_attempt == max((retry.attempt for retry in retries), default=0)
    assert run.resume_at == stored.get("resume_at")
    assert nouns.read(Run, nouns.put(run).record) == run.with_(version=2)


def test_a_status_item_is_small() -> None:
    """With every field filled in, and more replicas waiting than most runs have."""
    run = b.run(
        "a-name-of-forty-one-characters-is-as-long",
        user_name="somebody@an-organisation.example",
        status=RunStatus.running,
        reason=RunReason.retry_limit_exceeded,
        message="waits for a free place in fleet `a-fleet-of-some-name`",
        priority=100,
        deployment_num=12,
        fleet_id=b.fleet().id,
        fleet_name="a-fleet-of-some-name",
        due_at=b.NOW,
        finished_at=b.NOW,
    )
    assert len(nouns.put(run).record.body) <= 700
    waiting = tuple(ReplicaRetry(replica=num, attempt=3, resume_at=b.NOW) for num in range(5))
    assert len(nouns.put(run.with_(retries=waiting)).record.body) <= 1024
