"""What a project looked like at a moment: its runs with their jobs, its fleets and their machines.

A moment is stored every quarter of an hour in which something happened. The history from there on leads to any later
instant, because every event says what became of its subject.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from typing import ClassVar, Self

from chalicelib.domain import keys
from chalicelib.domain.events import Event, EventType
from chalicelib.domain.instants import DAY, HOUR, MINUTE, SECOND, Micros
from chalicelib.domain.noun import Noun, Value

EVERY = 15 * MINUTE
SHOWN = DAY  # how far back a state can be asked for
RENEWED = 12 * HOUR  # after which one is stored though nothing has changed, so that there always is one
KEPT = SHOWN + RENEWED + HOUR
MOST_RUNS = 3000  # of one moment; those that had ended are left out first
LARGEST = 250_000  # bytes of a state that stand in one record; DynamoDB's have at most 400 KiB
ENDED = ("terminated", "failed", "done")


class JobThen(Value):
    name: str
    status: str
    reason: str | None = None
    instance: str = ""  # the name of its machine, while it has a place
    price: float = 0.0  # of that, in dollars an hour


class RunThen(Value):
    id: str
    name: str
    user: str = ""
    status: str = "submitted"
    reason: str | None = None
    submitted_at: Micros
    finished_at: Micros | None = None
    jobs: dict[str, JobThen] = {}  # by name


class FleetThen(Value):
    id: str
    name: str
    status: str = "active"


class InstanceThen(Value):
    id: str
    name: str
    fleet_id: str
    status: str = "pending"
    health: str = "healthy"
    unreachable: bool = False
    backend: str = ""  # empty: a host that isn't known more closely
    region: str = ""
    type: str = ""
    spot: bool = False
    gpus: int = 0
    gpu: str = ""
    price: float = 0.0  # dollars an hour
    created_at: Micros


class State(Value):
    """Each by id."""

    runs: dict[str, RunThen] = {}
    fleets: dict[str, FleetThen] = {}
    instances: dict[str, InstanceThen] = {}

    def after(self, events: Iterable[Event]) -> State:
        """The state after these events, oldest first. One that the state has already changes nothing."""
        work = _Work(self)
        for event in events:
            work.follow(event)
        return State.unvalidated(runs=work.runs, fleets=work.fleets, instances=work.instances)

    def without_old(self, at: Micros) -> State:
        """Without runs that ended more than a day before."""
        kept = [run for run in self.runs.values() if run.finished_at is None or run.finished_at > at - SHOWN]
        kept.sort(key=lambda run: (run.finished_at is not None, -(run.finished_at or run.submitted_at), run.id))
        return self.with_(runs={run.id: run for run in kept[:MOST_RUNS]})


class Moment(Noun):
    kind: ClassVar[str] = "moment"

    project_id: str
    at: Micros
    packed: str  # the state, or the beginning of a large one
    parts: int = 0  # the number of further records that have the rest

    @classmethod
    def of(cls, project_id: str, at: Micros, state: State) -> tuple[Self, list[MomentPart]]:
        """The moment and its parts, which are to be stored before it."""
        text = base64.b85encode(zlib.compress(state.model_dump_json(exclude_defaults=True).encode(), 6)).decode()
        first, *rest = (text[start : start + LARGEST] for start in range(0, len(text), LARGEST))
        parts = [
            MomentPart.unvalidated(project_id=project_id, at=at, number=number, packed=each)
            for number, each in enumerate(rest)
        ]
        return cls.unvalidated(project_id=project_id, at=at, packed=first, parts=len(parts)), parts

    def state(self, parts: Iterable[MomentPart] = ()) -> State:
        """`parts`: all of them, in order."""
        text = "".join((self.packed, *(part.packed for part in parts)))
        return State.model_validate_json(zlib.decompress(base64.b85decode(text)))

    def place(self) -> keys.Place:
        return keys.Place(keys.moment(self.project_id, self.at), expires_at=(self.at + KEPT) // SECOND)


class MomentPart(Noun):
    project_id: str
    at: Micros
    number: int
    packed: str

    def place(self) -> keys.Place:
        key = keys.moment_part(self.project_id, self.at, self.number)
        return keys.Place(key, expires_at=(self.at + KEPT) // SECOND)


class _Work:
    """A state while it follows events."""

    def __init__(self, state: State) -> None:
        self.runs, self.fleets, self.instances = dict(state.runs), dict(state.fleets), dict(state.instances)

    def follow(self, event: Event) -> None:
        about = {"run": self._run, "job": self._job, "fleet": self._fleet, "instance": self._instance}
        if event.targets and event.targets[0].type in about:
            about[event.targets[0].type](event)

    def _run(self, event: Event) -> None:
        target = event.targets[0]
        known = self.runs.get(target.id)
        if event.type is EventType.created:
            user = event.actor_name or ""
            self.runs.setdefault(target.id, RunThen(id=target.id, name=target.name, user=user, submitted_at=event.at))
        elif event.type is EventType.deleted:
            self.runs.pop(target.id, None)
        elif event.type is EventType.status and event.after and known is not None:
            ended = event.at if event.after in ENDED else None
            self.runs[target.id] = known.with_(status=event.after, reason=event.reason, finished_at=ended)

    def _job(self, event: Event) -> None:
        run, target = self.runs.get(event.run_id or ""), event.targets[0]
        if run is None:
            return
        job = run.jobs.get(target.name)
        if event.type in (EventType.created, EventType.resubmitted):
            job = (
                job
                if job is not None and event.type is EventType.created
                else JobThen(name=target.name, status="submitted")
            )
        elif event.type is EventType.status and event.after:
            job = (job or JobThen(name=target.name, status="")).with_(status=event.after, reason=event.reason)
            job = _placed(job, event)
        if job is not None:
            self.runs[run.id] = run.with_(jobs={**run.jobs, target.name: job})

    def _fleet(self, event: Event) -> None:
        target = event.targets[0]
        known = self.fleets.get(target.id)
        if event.type is EventType.created:
            self.fleets.setdefault(target.id, FleetThen(id=target.id, name=target.name))
        elif event.type is EventType.deleted or (event.type is EventType.status and event.after == "terminated"):
            self.fleets.pop(target.id, None)
        elif event.type is EventType.status and event.after and known is not None:
            self.fleets[target.id] = known.with_(status=event.after)

    def _instance(self, event: Event) -> None:
        target = event.targets[0]
        known = self.instances.get(target.id)
        if event.type is EventType.ordered or (event.type is EventType.created and known is None):
            self.instances[target.id] = _ordered(event)
        elif known is None:
            return
        elif event.type is EventType.status and event.after == "terminated":
            del self.instances[target.id]
        elif event.type is EventType.status and event.after:
            self.instances[target.id] = known.with_(status=event.after)
        elif event.type is EventType.health and event.after:
            self.instances[target.id] = known.with_(health=event.after)
        elif event.type in (EventType.unreachable, EventType.reachable):
            self.instances[target.id] = known.with_(unreachable=event.type is EventType.unreachable)


def _placed(job: JobThen, event: Event) -> JobThen:
    if event.trade is None:
        return job
    if event.trade.act == "returned":
        return job.with_(instance="", price=0.0)
    name = next((each.name for each in event.targets if each.type == "instance"), "")
    return job.with_(instance=name, price=event.trade.price)


def _ordered(event: Event) -> InstanceThen:
    target, trade = event.targets[0], event.trade
    bare = InstanceThen(id=target.id, name=target.name, fleet_id=event.fleet_id or "", created_at=event.at)
    if trade is None:
        return bare
    return bare.with_(
        backend=trade.backend,
        region=trade.region,
        type=trade.type,
        spot=trade.spot,
        gpus=trade.gpus,
        gpu=trade.gpu,
        price=trade.price,
    )
