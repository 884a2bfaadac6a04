"""The AWS bill of this installation: how many there are of each cost driver, and what the model computes from that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from chalicelib.billing import plane as billed
from chalicelib.billing.plane import BUSY, DOOR, NODE, REPLICA, RUN, START, CostLine
from chalicelib.billing.plane_rates import CHANGES, RATES
from chalicelib.domain import keys
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instants import DAY, SECOND, Micros, sortable
from chalicelib.domain.runs import Run
from chalicelib.domain.services import Traffic, door_of
from chalicelib.engine.ports import Backends
from chalicelib.store import nouns
from chalicelib.store.listing import all_of, every
from chalicelib.store.port import Store
from chalicelib.usecases.pace import Pace
from chalicelib.usecases.ports import RecordPorts

WINDOW = 30 * DAY  # the time whose runs count as a month's
MOST = 500  # runs counted of a project; where there are more, the rate is computed from the newest


class CostPorts(RecordPorts, Protocol):
    """The ports for the bill's inputs."""

    @property
    def backends(self) -> Backends: ...

    @property
    def pace(self) -> Pace: ...

    @property
    def announces(self) -> bool: ...


@dataclass(frozen=True)
class CostReport:
    """A month's bill, line by line; empty where calls cost nothing."""

    pace: Pace
    counts: Mapping[str, float]
    lines: Sequence[CostLine]


def report(plane: CostPorts) -> CostReport:
    if plane.pace.long_poll:
        return CostReport(plane.pace, {}, ())
    runs, changes = _runs(plane), CHANGES if plane.announces else None
    more = {driver: count for driver, count in {**runs, **_services(plane.store)}.items() if count}
    accounts = float(len(plane.backends.accounts()))
    counts = billed.counts(float(_instances(plane.store)), runs[RUN], changes, more, accounts)
    return CostReport(plane.pace, counts, billed.bill(RATES, counts))


def _instances(store: Store) -> int:
    """The number of instances whose agents report."""
    return sum(1 for _ in all_of(store, "gsi1", keys.PRESENCES))


def _services(store: Store) -> dict[str, float]:
    """The number of replicas of services and of gateways, and of services that are busy now at each gateway replica."""
    found: Counter[str] = Counter()
    for project_id in _projects(store):
        gateways = (nouns.read(Gateway, record) for record in all_of(store, "gsi1", keys.gateways_of(project_id)))
        doors = {each.id: [door_of(each.id, one.num) for one in each.running] for each in gateways if not each.deleted}
        found[DOOR] += sum(map(len, doors.values()))
        for run in (nouns.read(Run, record) for record in all_of(store, "gsi2", keys.live_runs_of(project_id))):
            found[REPLICA] += sum(scale.desired for scale in run.scales)
            of_it = store.get_many([keys.traffic(run.id, door) for door in doors.get(run.gateway_id or "", ())])
            found[BUSY] += sum(not nouns.read(Traffic, record).quiet for record in of_it if record is not None)
    return {driver: float(count) for driver, count in found.items()}


def _projects(store: Store) -> list[str]:
    return [nouns.pointed(record) for record in every(store, "projects", "name/")]


def _runs(plane: RecordPorts) -> dict[str, float]:
    """The number of runs in a month, of their nodes beyond the first, and of starts of runs on several nodes."""
    found: Counter[str] = Counter()
    for project_id in _projects(plane.store):
        found.update(_of_project(plane, project_id))
    return {driver: float(found[driver]) for driver in (RUN, NODE, START)}


def _of_project(plane: RecordPorts, project_id: str) -> dict[str, float]:
    now, store = plane.clock.now(), plane.store
    page = store.query("gsi1", keys.runs_of(project_id), low=sortable(now - WINDOW), limit=MOST, reverse=True)
    runs = {run.id: run for run in (nouns.read(Run, record) for record in page.records)}
    each = 1.0
    if page.cursor is not None and runs:
        each = WINDOW / max(SECOND, now - min(run.submitted_at for run in runs.values()))
    often = dict.fromkeys(runs, each)
    for run in (nouns.read(Run, record) for record in all_of(store, "gsi2", keys.live_runs_of(project_id))):
        if run.triggered_at is not None:
            runs[run.id], often[run.id] = run, _starts(plane, run, now)
    nodes = dict(zip(runs, plane.read.nodes([*runs.values()]), strict=True))
    several = {id_: number for id_, number in nodes.items() if number > 1}
    further = sum(often[id_] * (number - 1) for id_, number in several.items())
    return {RUN: sum(often.values()), NODE: further, START: sum(often[id_] for id_ in several)}


def _starts(plane: RecordPorts, run: Run, now: Micros) -> float:
    """How often a scheduled run starts in the counted time. Each start costs about as much as a run."""
    newest = plane.read.newest_job(run.id, 0, 0)
    starts = 0 if newest is None else newest.submission_num + 1
    return starts * min(1.0, WINDOW / max(SECOND, now - run.submitted_at))
