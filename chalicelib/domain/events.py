"""Events: one line of history, appended in the same commit as the change it tells of.

History, audit, `dstack event` and the cost ledger are reads of this log, so an event is never written apart from its
change and never altered.
"""

from __future__ import annotations

from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun, Value


class Target(Value):
    type: str  # project, user, fleet, instance, run, job, volume, gateway, secret
    id: str
    name: str


class Event(Noun):
    id: str
    project_id: str
    at: Micros
    message: str
    actor_id: str | None = None  # None: the control plane itself
    actor_name: str | None = None
    targets: tuple[Target, ...]
    run_id: str | None = None  # the run it happened within, if any
    fleet_id: str | None = None
