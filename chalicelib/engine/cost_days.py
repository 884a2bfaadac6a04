"""Counts what a project's machines and volumes cost: days that are over once, and the hours since then whenever
somebody asks.

It is counted of the history, which has every machine and every job's place with its price, and of what is held now: a
machine that was ordered before the time in question, and is still there, has no event in it. The history of a fleet of
hosts also has the jobs of other projects there, if they are shared: what these had wasn't idle, and is counted with
them. Volumes are counted of their records, which stay for a month after a volume's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from chalicelib.billing import ledger
from chalicelib.billing.ledger import Holding, Spent
from chalicelib.billing.usage import volume_end
from chalicelib.domain import keys
from chalicelib.domain.costs import OTHERS, VOLUMES, CostDay
from chalicelib.domain.events import Event, Trade
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import DAY, HOUR, MINUTE, MONTH, Micros, day_of, sortable
from chalicelib.domain.jobs import Job
from chalicelib.domain.runs import Run
from chalicelib.domain.specs.providers import HOSTS
from chalicelib.domain.tenants import Project
from chalicelib.domain.volumes import Volume
from chalicelib.engine.ports import Clock
from chalicelib.engine.read import Reader, owners
from chalicelib.store import nouns
from chalicelib.store.history import SPAN, events_in
from chalicelib.store.listing import all_of
from chalicelib.store.port import Index

SETTLED: Micros = 5 * MINUTE  # after a day's end: its last events have been committed
FIRST = 30 * DAY  # how far back the first count goes
AT_ONCE = 10  # records of days in one commit


# --- the days that are over -------------------------------------------------------------------------------------------


def days_due(read: Reader, clock: Clock, project_id: str) -> int:
    """How many days are over and haven't been counted."""
    since, until = _uncounted(read, project_id), day_of(clock.now() - SETTLED)
    return 0 if since is None else max(0, until - since) // DAY


def close_days(read: Reader, clock: Clock, project_id: str, most: Micros = FIRST) -> int:
    """Count the days that are over and haven't been counted, the last `most` of them. Returns their number."""
    now = clock.now()
    until = day_of(now - SETTLED)
    since = _uncounted(read, project_id)
    if since is None or since >= until:
        return 0
    since = max(since, until - most)  # the server may have been off for long
    counted = ledger.days(project_id, hours(read, project_id, since, until, now), since, until)
    for start in range(0, len(counted), AT_ONCE):
        read.store.commit([nouns.put(day) for day in counted[start : start + AT_ONCE]])
    return len(counted)


def _uncounted(read: Reader, project_id: str) -> Micros | None:
    """The first day that hasn't been counted; None if there is no such project any more."""
    low, high = keys.cost_day(project_id, 0), keys.COST_DAYS.replace("/", "0")
    newest = read.store.query("main", low.pk, low=low.sk, high=high, limit=1, reverse=True).records
    if newest:
        return nouns.read(CostDay, newest[0]).day + DAY
    project = read.find(Project, keys.project(project_id))
    return None if project is None or project.deleted else day_of(project.created_at)


def rows(read: Reader, project_id: str, since: Micros, until: Micros, now: Micros) -> list[Spent]:
    """The rows from one day to another: of the days that were counted, and of those that weren't."""
    low, high = keys.cost_day(project_id, since), keys.cost_day(project_id, until)
    counted = [nouns.read(CostDay, each) for each in all_of(read.store, "main", low.pk, low=low.sk, high=high.sk)]
    open_since = counted[-1].day + DAY if counted else max(since, day_of(now) - FIRST)
    found = [row for day in counted for row in ledger.stored(day)]
    return found if open_since >= min(until, now) else found + hours(read, project_id, open_since, until, now)


def hours(read: Reader, project_id: str, since: Micros, until: Micros, now: Micros) -> list[Spent]:
    """The rows of this time, of the history."""
    return ledger.spent(_Holdings(read, project_id, max(since, now - FIRST - DAY)).found(), since, until, now)


# --- what was held ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Held:
    """A holding, with what names are found by."""

    start: Micros
    end: Micros | None
    trade: Trade
    machine: str
    fleet_id: str
    run_id: str = ""  # of a job
    lent: bool = False  # to a job of another project


class _Holdings:
    """What was held at some time since `since`."""

    def __init__(self, read: Reader, project_id: str, since: Micros) -> None:
        self._read, self._project_id, self._since = read, project_id, since
        self._open: dict[str, _Held] = {}  # by the id of the machine or the job
        self._ended: list[_Held] = []
        self._seen: set[str] = set()

    def found(self) -> list[Holding]:
        self._follow(self._trades("main", keys.events_of(self._project_id)))
        self._ended += self._silent_machines()
        machines = [each for each in (*self._ended, *self._open.values()) if not each.run_id]
        for fleet_id in sorted({each.fleet_id for each in machines if each.trade.backend == HOSTS}):
            events = self._trades("gsi2", keys.fleet_events(fleet_id))
            self._follow(event for event in events if event.project_id != self._project_id)
        return [*self._named([*self._ended, *self._open.values(), *self._silent_jobs()]), *self._volumes()]

    def _volumes(self) -> Iterator[Holding]:
        for record in all_of(self._read.store, "gsi1", keys.volumes_of(self._project_id)):
            volume = self._read.parse(Volume, record)
            end = volume_end(volume)
            if volume.active_at is None or volume.price is None or (end is not None and end < self._since):
                continue
            price, user = volume.price * HOUR / MONTH, volume.user_name
            yield Holding(volume.id, volume.active_at, end, price, gpus=0, gpu="", fleet=VOLUMES, user=user)

    def _follow(self, events: Iterable[Event]) -> None:
        unmatched: list[Event] = []
        for event in events:
            subject, trade = event.targets[0], event.trade
            if trade is None or subject.type not in ("instance", "job"):
                continue
            known = self._open.pop(subject.id, None)
            if known is not None:  # given back; or ordered again, at another price
                self._ended.append(replace(known, end=event.at))
            if trade.act == "returned":
                if known is None and subject.id not in self._seen:
                    unmatched.append(event)
            else:
                self._open[subject.id] = self._begun(event, trade)
            self._seen.add(subject.id)
        self._ended += self._earlier(unmatched)

    def _begun(self, event: Event, trade: Trade) -> _Held:
        machine = next((each.id for each in event.targets if each.type == "instance"), "")
        run_id = (event.run_id or "") if event.targets[0].type == "job" else ""
        lent = event.project_id != self._project_id
        return _Held(event.at, None, trade, machine, event.fleet_id or "", run_id, lent)

    def _trades(self, index: Index, partition: str) -> Iterator[Event]:
        low = sortable(max(0, self._since - SPAN))
        for record in all_of(self._read.store, index, partition, low=low):
            if b'"trade"' in record.body:
                yield from (event for event in events_in(record) if event.trade is not None)

    def _earlier(self, returned: Sequence[Event]) -> Iterator[_Held]:
        """What was given back in this time, and had begun before; or is a host, which nobody orders."""
        machines = {event.targets[0].id: event for event in returned if event.targets[0].type == "instance"}
        for instance in self._read.find_many(Instance, [keys.instance(id_) for id_ in machines]):
            if instance is not None:
                event = machines.pop(instance.id)
                assert event.trade is not None, "it was chosen for its trade"
                yield _Held(instance.created_at, event.at, event.trade, instance.id, instance.fleet_id)
        for id_, event in machines.items():
            assert event.trade is not None, "likewise"
            yield _Held(self._since, event.at, event.trade, id_, event.fleet_id or "")
        jobs = {event.targets[0].id: event for event in returned if event.targets[0].type == "job"}
        for run_id in dict.fromkeys(event.run_id for event in jobs.values() if event.run_id):
            for job in self._read.jobs(run_id):
                where, ended = job.assignment, jobs.pop(job.id, None) if job.assignment else None
                if where is not None and ended is not None and ended.trade is not None:
                    at, trade, lent = where.assigned_at, ended.trade, job.project_id != self._project_id
                    yield _Held(at, ended.at, trade, where.instance_id, where.fleet_id, run_id, lent)

    @cached_property
    def _own(self) -> Sequence[Instance]:
        return [each for id_ in owners(self._read.store, self._project_id) for each in self._read.instances(id_)]

    def _silent_machines(self) -> Iterator[_Held]:
        """Those that are held now, and have no event since then."""
        for instance in self._own:
            if instance.id not in self._seen:
                trade = Trade.of("bought", instance.offer)
                yield _Held(instance.created_at, None, trade, instance.id, instance.fleet_id)

    def _silent_jobs(self) -> Iterator[_Held]:
        """Likewise: the project's, wherever they are, and others' on its machines."""
        borrowed = [
            each for _, fleet in self._read.imported_fleets(self._project_id) for each in self._read.instances(fleet.id)
        ]
        mine = {instance.id for instance in self._own}
        wanted = [
            keys.job(each.run_id, each.replica_num, each.job_num, each.submission_num)
            for instance in (*self._own, *borrowed)
            for each in instance.claims
        ]
        for job in self._read.find_many(Job, wanted):
            if job is None or job.id in self._seen or job.assignment is None:
                continue
            where, lent = job.assignment, job.project_id != self._project_id
            if not lent or where.instance_id in mine:
                trade = Trade.of("taken", where.offer)
                at, end = where.assigned_at, job.finished_at
                yield _Held(at, end, trade, where.instance_id, where.fleet_id, job.run_id, lent)

    def _named(self, held: Sequence[_Held]) -> list[Holding]:
        users = self._users({each.run_id for each in held if each.run_id and not each.lent})
        fleets = self._fleets({each.fleet_id for each in held})
        return [
            Holding(
                machine=each.machine,
                start=each.start,
                end=each.end,
                price=each.trade.price,
                gpus=each.trade.gpus,
                gpu=each.trade.gpu,
                fleet=fleets.get(each.fleet_id, OTHERS),
                user=users.get(each.run_id, OTHERS) if each.run_id else None,
                lent=each.lent,
            )
            for each in held
        ]

    def _users(self, run_ids: Iterable[str]) -> Mapping[str, str]:
        found = self._read.find_many(Run, [keys.run(run_id) for run_id in sorted(run_ids)])
        return {run.id: run.user_name for run in found if run is not None}

    def _fleets(self, ids: Iterable[str]) -> Mapping[str, str]:
        """The names of fleets, and of gateways, which have machines of their own."""
        wanted = sorted(id_ for id_ in ids if id_)
        fleets = self._read.find_many(Fleet, [keys.fleet(id_) for id_ in wanted])
        names = {each.id: each.name for each in fleets if each is not None}
        gateways = self._read.find_many(Gateway, [keys.gateway(id_) for id_ in wanted if id_ not in names])
        return names | {each.id: f"gateway {each.name}" for each in gateways if each is not None}
