"""What a plan's steps become in the store, and what a conflict takes with it."""

from __future__ import annotations

import pytest

from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.offers import InstanceType, Offer, Resources
from chalicelib.engine.commit import Committer
from chalicelib.errors import Bug, Conflict
from chalicelib.planning.plan import Create, Describe, Plan, Step
from chalicelib.store import keys, nouns
from chalicelib.store.port import Put
from tests.engine.places import Place

BOUGHT = Offer(
    backend="dstack",
    instance=InstanceType(name="sim.2cpu", resources=Resources(cpus=2, memory_mib=8192)),
    region="sim-east",
    price=0.1,
)


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def committer(place: Place) -> Committer:
    return Committer(place.store, place, place.rung.extend)


def test_steps_that_change_one_noun_build_on_each_other(place: Place, committer: Committer) -> None:
    (host,) = place.hosts(1)
    first = host.with_(message="one")
    second = first.with_(message="two")
    done = committer.commit(Plan((Step((first,)), Step((second,)))))
    assert (done.steps, done.lost) == (2, [])
    assert (place.instance(host).message, place.instance(host).version) == ("two", 3)


def test_a_noun_made_in_one_step_is_changed_in_the_next(place: Place, committer: Committer) -> None:
    (host,) = place.hosts(1)
    new = host.with_(id="new", num=1, name="new", version=0)
    done = committer.commit(Plan((Step((new,)), Step((new.with_(message="changed"),)))))
    assert done.steps == 2
    assert place.instance(new).message == "changed"


def test_lost_step_takes_with_it_what_builds_on_it_and_nothing_else(place: Place, committer: Committer) -> None:
    one, other = place.hosts(2)
    stale = place.run("stale")
    place.store.commit([nouns.put(stale.with_(message="moved on"))])
    plan = Plan(
        (
            Step((stale, one.with_(message="lost")), wake=("run/lost",)),
            Step((one.with_(message="built on the lost one"),), effects=(Describe(one.id),)),
            Step((other.with_(message="fine"),), wake=("run/fine",)),
        )
    )
    done = committer.commit(plan)
    assert done.steps == 1
    assert set(done.lost) == {nouns.key_of(stale), keys.instance(one.id)}
    assert done.wake == ["run/fine"]
    assert (place.instance(one).message, place.instance(other).message) == ("", "fine")
    assert place.effects == []


def test_effects_and_news_follow_the_commit(place: Place, committer: Committer) -> None:
    (host,) = place.hosts(1)
    committer.commit(Plan((Step((host.with_(message="x"),), effects=(Describe(host.id),)),)))
    assert place.effects == [Describe(host.id)]
    assert place.rung == [host.id]


def test_nothing_follows_a_lost_commit(place: Place, committer: Committer) -> None:
    (host,) = place.hosts(1)
    place.store.commit([nouns.put(host.with_(message="quicker"))])
    done = committer.commit(Plan((Step((host,), effects=(Describe(host.id),)),)))
    assert done.lost == [keys.instance(host.id)]
    assert (place.effects, place.rung) == ([], [])


def test_purchase_carries_the_patience_it_was_committed_with(place: Place, committer: Committer) -> None:
    (host,) = place.hosts(1)
    wanted = host.with_(status=InstanceStatus.pending, offer=BOUGHT, act_until=77)
    committer.commit(Plan((Step((wanted,), effects=(Create(host.id),)),)))
    assert place.effects == [Create(host.id, act_until=77)]


def test_purchase_without_intent_is_a_bug(place: Place, committer: Committer) -> None:
    (host,) = place.hosts(1)
    with pytest.raises(Bug, match="act_until"):
        committer.commit(Plan((Step((host,), effects=(Create(host.id),)),)))
    assert place.instance(host).version == 1


def test_store_really_refuses_a_stale_version(place: Place) -> None:
    (host,) = place.hosts(1)
    place.store.commit([nouns.put(host)])
    with pytest.raises(Conflict):
        place.store.commit([Put(nouns.put(host).record, expect=1)])
    assert isinstance(place.instance(host), Instance)
