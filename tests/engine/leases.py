"""A small noun that the control plane doesn't have, declared as any other would be: its class, its states, its
decisions, its effect, and one row. A lease is open until its time is up, then given back, then closed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.keys import Key, Place
from chalicelib.domain.noun import Noun
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.kinds import KINDS, Kind, Unit
from chalicelib.engine.load import Loader
from chalicelib.machines.table import StateMachine
from chalicelib.planning.kernel.lint import Known
from chalicelib.planning.kernel.plan import Effect, Outcome, Plan, Step
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.store import nouns
from chalicelib.store.port import Store


class LeaseStatus(StrEnum):
    open = "open"
    closing = "closing"
    closed = "closed"


LEASE = StateMachine(
    noun="lease",
    initial=("open",),
    terminal=frozenset({"closed"}),
    table={"open": {"end": "closing"}, "closing": {"returned": "closed"}},
    timeouts={"open": "ends_at", "closing": "asked again every minute"},
)


class Lease(Noun):
    kind: ClassVar[str] = "lease"

    id: str
    project_id: str
    name: str
    status: LeaseStatus = LeaseStatus.open
    message: str = ""
    ends_at: Micros
    last_processed_at: Micros = 0
    due_at: Micros | None = None

    def place(self) -> Place:
        listed = (f"leases/{self.project_id}", self.id)
        return Place(Key(f"lease/{self.id}", keys.STATUS), listed, due=keys.due(f"lease/{self.id}", self.due_at))


@dataclass(frozen=True)
class LeaseSnapshot:
    now: Micros
    lease: Lease

    @property
    def unit(self) -> str:
        return f"lease/{self.lease.id}"

    def nouns(self) -> Iterator[Noun]:
        yield self.lease

    def views(self) -> tuple[FleetView, ...]:
        return ()


@dataclass(frozen=True)
class Return(Effect):
    """Give what is leased back."""


@dataclass(frozen=True)
class Returned(Outcome):
    pass


def load(loader: Loader, lease_id: str, now: Micros) -> LeaseSnapshot | None:
    found = nouns.find(loader.store, Lease, Key(f"lease/{lease_id}", keys.STATUS))
    return None if found is None else LeaseSnapshot(now, found)


def decide(snapshot: LeaseSnapshot) -> Plan:
    lease, now = snapshot.lease, snapshot.now
    if lease.status is LeaseStatus.closed or now < (lease.due_at or lease.ends_at):
        return Plan(next_wake=lease.due_at)
    draft, again = Draft(now), now + MINUTE
    if lease.status is LeaseStatus.open:
        draft.move(LEASE, lease, "end", due_at=again)
    else:
        draft.save(lease.with_(due_at=again))
    draft.act(Return(snapshot.unit, "bank", again))
    return Plan((draft.step(),), next_wake=again)


def conclude(snapshot: LeaseSnapshot, outcome: Outcome) -> Plan:
    draft = Draft(snapshot.now)
    if isinstance(outcome, Returned) and snapshot.lease.status is LeaseStatus.closing:
        draft.move(LEASE, snapshot.lease, "returned", due_at=None)
        draft.wake(f"lease/{snapshot.lease.id}")
    return draft.plan()


def open_leases_have_an_end(step: Step, known: Known) -> Iterator[str]:
    for noun in step.saves:
        if isinstance(noun, Lease) and noun.status is not LeaseStatus.closed and noun.due_at is None:
            yield f"lease {noun.name} is {noun.status.value} and nobody will ever look at it"


ROW = Kind(
    "lease",
    Lease,
    LEASE,
    Unit(decide, woken_by=frozenset({"lease"}), load=load, conclude=conclude),
    steps=(open_leases_have_an_end,),
)

WITH_LEASES = KINDS.with_(ROW)


class Leases:
    """The family of its effects."""

    effects: ClassVar[Mapping[type[Effect], str]] = {Return: "give_back"}
    given_back: ClassVar[list[str]] = []

    def __init__(self, here: EffectContext) -> None:
        self.here = here

    def give_back(self, effect: Return) -> Outcome:
        self.given_back.append(effect.unit)
        return Returned(effect.unit)


def take(store: Store, name: str, now: Micros, project_id: str = "p") -> Lease:
    """A lease of ten seconds."""
    lease = Lease(id=name, project_id=project_id, name=name, ends_at=now + 10 * SECOND, due_at=now + 10 * SECOND)
    store.commit([nouns.put(lease)])
    return lease.with_(version=1)


def current(store: Store, lease: Lease) -> Lease:
    found = nouns.find(store, Lease, nouns.key_of(lease))
    assert found is not None
    return found
