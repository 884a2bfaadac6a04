"""What situations are made of, and the list of them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chalicelib.domain.instances import Handle, Instance
from chalicelib.domain.instants import HOUR, SECOND
from chalicelib.domain.jobs import Assignment, Job
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.snapshot import Snapshot
from tests.world import nouns as b

Decided = tuple[Snapshot, Plan]

NOW = b.NOW + 1000 * SECOND
BEFORE = NOW - HOUR
OPEN = b.FACTS["aws"].create_timeout + b.FACTS["aws"].visibility_lag  # how long a purchase is under way
HAND = (Handle(kind="vm", id="vm-1"),)


@dataclass(frozen=True)
class Situation:
    decide: Callable[[], Decided]
    comes_to: str  # the plan's outline; empty: `golden/plans.txt` has the whole plan


ALL: dict[str, Situation] = {}


def situation(name: str, decide: Callable[..., Decided], *args: Any, comes_to: str = "", **fields: Any) -> None:
    assert name not in ALL
    ALL[name] = Situation(lambda: decide(*args, **fields), comes_to)


def placed(at: Instance, job: Job) -> Job:
    where = Assignment(
        instance_id=at.id,
        instance_name=at.name,
        fleet_id=at.fleet_id,
        fleet_name=at.fleet_name,
        offer=at.offer,
        assigned_at=BEFORE,
    )
    return job.with_(assignment=where, provisioned_at=BEFORE, due_at=None)
