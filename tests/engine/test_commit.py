"""What a plan's steps become in the store, and what a conflict takes with it."""

from __future__ import annotations

import pytest

from chalicelib.domain import keys
from chalicelib.domain.instances import Instance
from chalicelib.engine.commit import Committer
from chalicelib.engine.kinds import KINDS
from chalicelib.errors import Conflict
from chalicelib.planning.plan import Effect, Plan, Step
from chalicelib.planning.purchases import Describe
from chalicelib.store import nouns
from chalicelib.store.port import Put
from tests.world.engine import Engine


def looking(host: Instance) -> Effect:
    return Describe(f"instance/{host.id}", "dstack", 77)


@pytest.fixture
def place() -> Engine:
    return Engine.in_memory()


@pytest.fixture
def committer(place: Engine) -> Committer:
    return Committer(place.store, KINDS, place, place.rung.extend)


def test_steps_that_change_one_noun_build_on_each_other(place: Engine, committer: Committer) -> None:
    (host,) = place.hosts(1)
    first = host.with_(message="one")
    second = first.with_(message="two")
    done = committer.commit(Plan((Step((first,)), Step((second,)))))
    assert (done.steps, done.lost) == (2, [])
    assert (place.again(host).message, place.again(host).version) == ("two", 3)


def test_a_noun_made_in_one_step_is_changed_in_the_next(place: Engine, committer: Committer) -> None:
    (host,) = place.hosts(1)
    new = host.with_(id="new", num=1, name="new", version=0)
    done = committer.commit(Plan((Step((new,)), Step((new.with_(message="changed"),)))))
    assert done.steps == 2
    assert place.again(new).message == "changed"


def test_lost_step_takes_with_it_what_builds_on_it_and_nothing_else(place: Engine, committer: Committer) -> None:
    one, other = place.hosts(2)
    stale = place.run("stale")
    place.store.commit([nouns.put(stale.with_(message="moved on"))])
    plan = Plan(
        (
            Step((stale, one.with_(message="lost")), wake=("run/lost",)),
            Step((one.with_(message="built on the lost one"),), effects=(looking(one),)),
            Step((other.with_(message="fine"),), wake=("run/fine",)),
        )
    )
    done = committer.commit(plan)
    assert done.steps == 1
    assert set(done.lost) == {nouns.key_of(stale), keys.instance(one.id)}
    assert done.wake == ["run/fine"]
    assert (place.again(one).message, place.again(other).message) == ("", "fine")
    assert place.effects == []


def test_effects_and_news_follow_the_commit(place: Engine, committer: Committer) -> None:
    (host,) = place.hosts(1)
    committer.commit(Plan((Step((host.with_(message="x"),), effects=(looking(host),)),)))
    assert place.effects == [looking(host)]
    assert place.rung == [host.id]


def test_nothing_follows_a_lost_commit(place: Engine, committer: Committer) -> None:
    (host,) = place.hosts(1)
    place.store.commit([nouns.put(host.with_(message="quicker"))])
    done = committer.commit(Plan((Step((host,), effects=(looking(host),)),)))
    assert done.lost == [keys.instance(host.id)]
    assert (place.effects, place.rung) == ([], [])


def test_store_really_refuses_a_stale_version(place: Engine) -> None:
    (host,) = place.hosts(1)
    place.store.commit([nouns.put(host)])
    with pytest.raises(Conflict):
        place.store.commit([Put(nouns.put(host).record, expect=1)])
    assert isinstance(place.again(host), Instance)
