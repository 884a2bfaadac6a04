"""What a description of a machine says, and what follows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chalicelib.backends.accounts import UnusableBackend
from chalicelib.backends.simulated.cloud import FACTS, FakeCloud
from chalicelib.backends.simulated.script import Fault
from chalicelib.backends.spi import Backend, Machine
from chalicelib.domain.instances import Handle, InstanceStatus
from chalicelib.domain.instants import SECOND
from chalicelib.domain.reasons import InstanceReason
from chalicelib.errors import BackendError, Gone
from chalicelib.planning.kernel.purchases import (
    DescribeSeveral,
    NotDone,
    Seen,
)
from chalicelib.store import nouns
from tests.engine.effect_bench import OTHER, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_description_tells_where_the_machine_is(bench: Bench) -> None:
    bench.executor.execute(bench.effect)
    bench.place.at += 10 * SECOND
    bench.executor.execute(bench.describe)
    seen = bench.outcomes[-1]
    assert isinstance(seen, Seen)
    assert seen.state == "running"
    assert bench.instance.internal_ip == seen.internal_ip != ""


def test_machine_that_is_not_shown_yet_is_not_gone(bench: Bench) -> None:
    bench.script.lag = 5 * SECOND
    bench.executor.execute(bench.effect)
    bench.executor.execute(bench.describe)
    seen = bench.outcomes[-1]
    assert isinstance(seen, Seen) and seen.state == "gone"
    assert bench.instance.status is InstanceStatus.provisioning


def test_machine_that_vanished_is_gone(bench: Bench) -> None:
    bench.executor.execute(bench.effect)
    bench.place.at += 60 * SECOND
    bench.cloud.lose(bench.instance.handles[1].id)
    bench.executor.execute(bench.describe)
    ids = " or ".join(handle.id for handle in bench.instance.handles)
    assert Seen(bench.unit, 0, "gone", message=f"there is no machine {ids}") in bench.outcomes
    assert bench.instance.status is InstanceStatus.terminating


def test_machine_whose_creation_seemed_to_fail_is_recorded_once_it_is_described(bench: Bench) -> None:
    """Its agent reported before the purchase was repeated, so nothing else would have found it before its end."""
    bench.script.faults.append(Fault("create", "Transient", when="after"))
    bench.executor.execute(bench.effect)
    recorded = bench.instance.handles
    bench.change(status=InstanceStatus.idle, started_at=bench.place.at)
    bench.place.at += 60 * SECOND
    bench.executor.execute(bench.describe)
    seen = bench.outcomes[-1]
    assert isinstance(seen, Seen) and seen.state == "running"
    assert len(bench.instance.handles) > len(recorded)


def test_description_that_needs_a_list_which_fails_shows_nothing_as_gone(bench: Bench) -> None:
    bench.script.faults.extend([Fault("create", "Transient", when="after"), Fault("list", "Transient")])
    bench.executor.execute(bench.effect)
    bench.change(status=InstanceStatus.idle, started_at=bench.place.at)
    bench.place.at += 60 * SECOND
    bench.executor.execute(bench.describe)
    assert bench.instance.status is InstanceStatus.idle


def test_machine_for_which_there_was_no_room_after_all_was_refused(bench: Bench) -> None:
    bench.script.short = 1
    bench.executor.execute(bench.effect)
    bench.place.at += bench.script.boot
    bench.executor.execute(bench.describe)
    assert (bench.instance.status, bench.instance.reason) == (InstanceStatus.terminating, InstanceReason.no_offers)
    assert bench.first.offer.instance.name in (bench.instance.message or "")


def test_several_machines_are_looked_at_in_one_call_and_each_is_concluded(bench: Bench) -> None:
    """One is gone, one runs, and one is nobody's any more."""
    bench.executor.execute(bench.effect)
    bench.place.at += 60 * SECOND
    bench.cloud.lose(bench.instance.handles[1].id)
    other = bench.instance.with_(id=OTHER, num=1, name="cloud-1", handles=(), version=0)
    handles = tuple(bench.cloud.create(bench.request(other)))
    bench.place.store.commit([nouns.put(other.with_(handles=handles))])
    units = (bench.unit, "instance/nobody", f"instance/{OTHER}")
    bench.outcomes.clear()
    bench.executor.execute(DescribeSeveral(bench.unit, FACTS.name, bench.place.at + SECOND, "", units))
    gone, there = (each for each in bench.outcomes if isinstance(each, Seen))
    assert (gone.unit, gone.state, there.unit, there.state) == (bench.unit, "gone", f"instance/{OTHER}", "pending")
    assert bench.logged_as[-len(bench.outcomes) :] == [each.unit for each in bench.outcomes]
    assert bench.instance.status is InstanceStatus.terminating


class Unlisted(FakeCloud):
    """Its list isn't found, which proves nothing about any machine."""

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        raise Gone("GET instances: 404")


@pytest.mark.parametrize("failing", [None, UnusableBackend(FACTS, "it lacks its SDK"), Unlisted(lambda: 0)])
def test_a_look_at_several_that_fails_is_a_failed_look_at_each(bench: Bench, failing: Backend | None) -> None:
    bench.executor.execute(bench.effect)
    other = bench.instance.with_(id=OTHER, num=1, name="cloud-1", version=0)
    bench.place.store.commit([nouns.put(other)])
    bench.script.faults.append(Fault("describe", "Transient"))
    executor = bench.executor if failing is None else bench.with_backend(failing)
    units = (bench.unit, f"instance/{OTHER}")
    executor.execute(DescribeSeveral(bench.unit, FACTS.name, bench.place.at + SECOND, "", units))
    assert [(type(each), each.unit) for each in bench.outcomes[-2:]] == [(NotDone, unit) for unit in units]


def test_failed_look_changes_nothing(bench: Bench) -> None:
    bench.executor.execute(bench.effect)
    bench.script.faults.append(Fault("describe", "Transient"))
    bench.executor.execute(bench.describe)
    assert isinstance(bench.outcomes[-1], NotDone)
    assert bench.instance.status is InstanceStatus.provisioning
