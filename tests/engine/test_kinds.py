"""The table of nouns: a noun that nobody wrote the engine for lives in it by its row alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from chalicelib.domain.events import Event
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.execute import Executor
from chalicelib.engine.kinds import KINDS
from chalicelib.engine.load import Loader
from chalicelib.engine.read import Reader
from chalicelib.errors import Bug
from chalicelib.planning.kernel.plan import Outcome, Plan, Step
from chalicelib.planning.kernel.purchases import Describe, NotDone
from chalicelib.store import nouns
from chalicelib.store.memory import MemoryStore
from chalicelib.store.sqlite import SqliteStore
from tests.engine import leases
from tests.engine.leases import Lease, Leases, LeaseSnapshot, LeaseStatus
from tests.world.engine import Engine
from tests.world.ports import Books, accounts


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    in_memory = request.param == "memory"
    made = Engine.in_memory() if in_memory else Engine.in_memory(store=SqliteStore(tmp_path / "plane.db"))
    yield made
    made.store.close()


def executor(place: Engine, family: type[Any] = Leases) -> Executor:
    here = EffectContext(place.store, place, accounts(), "install", b"k" * 32)
    load = Loader(Reader(place.store), Books(), accounts())
    return Executor(here, load, wake=place.woken.extend, kinds=leases.WITH_LEASES, families=(family,))


def live(place: Engine) -> Lease:
    """A lease from its taking to its end, with nothing but passes and effects."""
    lease = leases.take(place.store, "one", place.at)
    engine = place.reconciler(kinds=leases.WITH_LEASES)
    engine.run()
    assert leases.current(place.store, lease).status is LeaseStatus.open
    place.at += 11 * SECOND
    engine.run()
    assert leases.current(place.store, lease).status is LeaseStatus.closing
    (effect,) = place.effects
    executor(place).execute(effect)
    return leases.current(place.store, lease)


def test_a_noun_lives_by_its_row(place: Engine) -> None:
    ended = live(place)
    assert (ended.status, ended.due_at) == (LeaseStatus.closed, None)
    page = place.store.query("main", "events/p", limit=10)
    messages = [nouns.read(Event, record).message for record in page.records]
    assert messages == ["open → closing", "closing → closed"]
    assert place.woken == ["lease/one"]


def test_an_effect_that_was_lost_is_repeated(place: Engine) -> None:
    lease = leases.take(place.store, "one", place.at)
    engine = place.reconciler(kinds=leases.WITH_LEASES)
    place.at += 11 * SECOND
    engine.run()
    place.effects.clear()
    place.at += MINUTE + 1
    engine.run()
    (effect,) = place.effects
    executor(place).execute(effect)
    assert leases.current(place.store, lease).status is LeaseStatus.closed


def test_a_lease_that_fails_is_put_off_and_told(place: Engine) -> None:
    def broken(snapshot: LeaseSnapshot) -> Plan:
        raise ZeroDivisionError("a bug")

    lease = leases.take(place.store, "one", place.at)
    place.at += 11 * SECOND
    done = place.reconciler(kinds=leases.WITH_LEASES.deciding("lease", decide=broken)).run()
    assert list(done.failed) == ["lease/one"]
    record = place.store.get(nouns.key_of(lease))
    assert record is not None and record.due is not None and record.due.at > place.at


def test_its_own_invariant_and_everybodys_hold_for_it(place: Engine) -> None:
    lease = leases.take(place.store, "one", place.at)
    snapshot = LeaseSnapshot(place.at, lease)
    rules = leases.WITH_LEASES.rules
    forgotten = Plan((Step((lease.with_(due_at=None),)),))
    assert rules.broken(snapshot, forgotten) == ["lease one is open and nobody will ever look at it"]
    untold = Plan((Step((lease.with_(status=LeaseStatus.closed),)),))
    assert rules.broken(snapshot, untold) == ["lease one becomes closed without an event"]
    backwards = LeaseSnapshot(place.at, lease.with_(status=LeaseStatus.closed))
    assert any("can't become open" in text for text in rules.broken(backwards, Plan((Step((lease,)),))))
    nosy = Plan((Step(wake=("run/r",)),))
    assert rules.broken(snapshot, nosy) == ["lease/one may not wake run/r"]


def test_without_its_row_it_is_nothing(place: Engine) -> None:
    leases.take(place.store, "one", place.at)
    place.at += 11 * SECOND
    assert place.reconciler().run(["lease/one"]).steps == 0
    with pytest.raises(Bug, match="no kind of unit"):
        KINDS.unit("lease")


@pytest.mark.parametrize("kind", ["queue", "run"])
def test_an_outcome_about_what_has_no_effects_is_a_bug(place: Engine, kind: str) -> None:
    class Astray:
        effects: ClassVar = {Describe: "describe"}

        def __init__(self, here: EffectContext) -> None:
            """It needs nothing."""

        def describe(self, effect: Describe) -> Outcome:
            return NotDone(f"{kind}/one", "Transient", "no")

    with pytest.raises(Bug, match=f"{kind} is a unit without effects"):
        executor(place, Astray).execute(Describe("instance/one", "aws", place.at + SECOND))


def test_a_row_that_is_added_leaves_the_table_as_it_was() -> None:
    assert "lease" not in KINDS.units
    units = ["queue", "run", "instance", "fleet", "volume", "gateway", "certificate", "workflow", "closing"]
    assert list(KINDS.units) == units
    assert isinstance(Engine.in_memory().store, MemoryStore)


def test_only_a_unit_can_decide_otherwise() -> None:
    name = next(row.name for row in KINDS.rows if row.unit is None)
    with pytest.raises(Bug, match=f"{name} is no unit"):
        KINDS.deciding(name)


def test_every_kind_says_its_name_where_its_noun_does() -> None:
    for row in KINDS.rows:
        assert row.noun is None or row.noun.kind == row.name
        assert row.machine is None or row.machine.noun == row.name
