"""Which pure function decides about which kind of unit. The engine is given this table and holds no decision itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.errors import Bug
from chalicelib.planning.fleet import decide_fleet
from chalicelib.planning.instance import decide_instance, decide_outcome
from chalicelib.planning.lint import lint
from chalicelib.planning.plan import Outcome, Plan
from chalicelib.planning.queue import decide_queue
from chalicelib.planning.run import decide_run
from chalicelib.planning.snapshots import FleetSnapshot, InstanceSnapshot, QueueSnapshot, RunSnapshot


@dataclass(frozen=True)
class Decisions:
    queue: Callable[[QueueSnapshot], Plan] = decide_queue
    run: Callable[[RunSnapshot], Plan] = decide_run
    instance: Callable[[InstanceSnapshot], Plan] = decide_instance
    fleet: Callable[[FleetSnapshot], Plan] = decide_fleet
    outcome: Callable[[InstanceSnapshot, Outcome], Plan] = decide_outcome
    lint: Callable[[Any, Plan], Sequence[str]] = lint

    def checked(self, snapshot: Any, plan: Plan) -> Plan:
        """The plan, if it keeps every invariant; nothing of one that doesn't is committed."""
        found = self.lint(snapshot, plan)
        if found:
            raise Bug("the plan breaks a rule: " + "; ".join(map(str, found)))
        return plan
