"""What a plan's steps become in the store, and what a conflict takes with it."""

from __future__ import annotations

import pytest

from chalicelib.domain import keys
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.engine.commit import Committer, RequestCommitter
from chalicelib.engine.kinds import KINDS
from chalicelib.errors import Bug, Conflict, Invalid
from chalicelib.planning.kernel.plan import Effect, Plan, Step
from chalicelib.planning.kernel.purchases import Describe, DescribeSeveral
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.store import nouns
from chalicelib.store.port import MAX_BODY, MAX_CHANGES, Put
from tests.world.engine import Engine


def describe(host: Instance) -> Effect:
    return Describe(f"instance/{host.id}", "dstack", 77)


@pytest.fixture
def place() -> Engine:
    return Engine.in_memory()


@pytest.fixture
def committer(place: Engine) -> Committer:
    return Committer(place.plane.read, KINDS, place, place.rung.extend)


def test_steps_that_change_one_noun_build_on_each_other(place: Engine, committer: Committer) -> None:
    (host,) = place.hosts(1)
    first = host.with_(message="one")
    second = first.with_(message="two")
    done = committer.commit(Plan((Step((first,)), Step((second,)))))
    assert (done.steps, done.lost) == (2, [])
    assert (place.again(host).message, place.again(host).version) == ("two", 3)


def test_whoever_reads_what_was_just_committed_parses_it_no_more(place: Engine, committer: Committer) -> None:
    (host,) = place.hosts(1)
    committer.commit(Plan((Step((host.with_(message="one"),)), Step((host.with_(message="two"),)))))
    found = place.plane.read.find(Instance, keys.instance(host.id))
    assert found is not None and (found.message, found.version) == ("two", 3)
    assert found.offer is host.offer, "a parsed one would have an offer of its own"


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
            Step((one.with_(message="built on the lost one"),), effects=(describe(one),)),
            Step((other.with_(message="fine"),), wake=("run/fine",)),
        )
    )
    done = committer.commit(plan)
    assert done.steps == 1
    assert set(done.lost) == {nouns.key_of(stale), keys.instance(one.id)}
    assert done.wake == ["run/fine"]
    assert (place.again(one).message, place.again(other).message) == ("", "fine")
    assert place.effects == []


def test_what_builds_on_a_step_that_falls_with_another_falls_too(place: Engine, committer: Committer) -> None:
    one, other = place.hosts(2)
    stale = place.run("stale")
    place.store.commit([nouns.put(stale.with_(message="moved on"))])
    chain = Step((stale, one)), Step((one, other.with_(message="second"))), Step((other.with_(message="third"),))
    assert committer.commit(Plan(chain)).steps == 0
    assert place.again(other).message == ""


def test_looks_at_machines_of_one_account_are_put_together(place: Engine, committer: Committer) -> None:
    """Not those that are lost."""
    hosts = place.hosts(3)
    stale, calls = hosts[1], [Describe(f"instance/{host.id}", "dstack", 77, together=8) for host in hosts]
    place.store.commit([nouns.put(stale.with_(message="moved on"))])

    def seen(found: list[Instance]) -> list[Effect]:
        place.effects.clear()
        each = zip(found, calls, strict=True)
        committer.commit(Plan(tuple(Step((host.with_(message="seen"),), effects=(call,)) for host, call in each)))
        return place.effects

    assert [effect.unit for effect in seen(hosts)] == [calls[0].unit, calls[2].unit]
    (effect,) = seen([place.again(host) for host in hosts])
    assert isinstance(effect, DescribeSeveral) and effect.units == tuple(call.unit for call in calls)


def test_steps_that_touch_different_records_are_committed_at_once(place: Engine, committer: Committer) -> None:
    hosts = place.hosts(MAX_CHANGES + 1)
    before = place.store.commits
    done = committer.commit(Plan(tuple(Step((host.with_(message="moved"),)) for host in hosts)))
    assert (done.steps, done.lost, place.store.commits - before) == (MAX_CHANGES + 1, [], 2)
    assert {place.again(host).message for host in hosts} == {"moved"}


def test_step_that_is_refused_is_the_only_one(place: Engine, committer: Committer) -> None:
    fine, large = place.hosts(2)
    with pytest.raises(Invalid):
        committer.commit(Plan((Step((fine.with_(message="moved"),)), Step((large.with_(message="x" * MAX_BODY),)))))
    assert (place.again(fine).message, place.again(large).message) == ("moved", "")


def test_one_of_many_that_loses_takes_no_other_with_it(place: Engine, committer: Committer) -> None:
    hosts = place.hosts(5)
    place.save(hosts[2].with_(message="quicker"))
    steps = [Step((host.with_(message="moved"),), wake=(f"instance/{host.id}",)) for host in hosts]
    done = committer.commit(Plan(tuple(steps)))
    assert (done.steps, done.lost) == (4, [keys.instance(hosts[2].id)])
    assert done.wake == [f"instance/{host.id}" for host in hosts if host is not hosts[2]]
    assert [place.again(host).message for host in hosts] == ["moved", "moved", "quicker", "moved", "moved"]


def test_effects_and_news_follow_the_commit(place: Engine, committer: Committer) -> None:
    (host,) = place.hosts(1, status=InstanceStatus.busy)
    committer.commit(Plan((Step((host.with_(message="x"),), effects=(describe(host),)),)))
    assert place.effects == [describe(host)]
    assert place.rung == [host.id]


def test_idle_machine_is_not_disturbed_by_its_own_record(place: Engine, committer: Committer) -> None:
    (host,) = place.hosts(1)
    committer.commit(Plan((Step((host.with_(due_at=place.at),)),)))
    assert place.rung == []


def test_nothing_follows_a_lost_commit(place: Engine, committer: Committer) -> None:
    (host,) = place.hosts(1)
    place.store.commit([nouns.put(host.with_(message="quicker"))])
    done = committer.commit(Plan((Step((host,), effects=(describe(host),)),)))
    assert done.lost == [keys.instance(host.id)]
    assert (place.effects, place.rung) == ([], [])


def test_what_was_written_is_known_until_somebody_else_writes_it(place: Engine, committer: Committer) -> None:
    (host,) = place.hosts(1)
    committer.commit(Plan((Step((host.with_(message="one"),)), Step((host.with_(message="two"),)))))
    read, key = place.plane.read, keys.instance(host.id)
    known = read.find(Instance, key)
    assert known == place.again(host) == host.with_(message="two", version=3)
    assert read.find(Instance, key) is known
    place.save(place.again(host).with_(message="three"))  # by another process
    assert read.find(Instance, key) == host.with_(message="three", version=4)


def test_store_really_refuses_a_stale_version(place: Engine) -> None:
    (host,) = place.hosts(1)
    place.store.commit([nouns.put(host)])
    with pytest.raises(Conflict):
        place.store.commit([Put(nouns.put(host).record, expect=1)])
    assert isinstance(place.again(host), Instance)


# --- the door ---------------------------------------------------------------------------------------------------------


def test_a_request_that_breaks_a_rule_is_not_committed(place: Engine) -> None:
    (host,) = place.hosts(1)
    door = RequestCommitter(place.plane.read, wake=place.woken.extend, notify_agents=place.rung.extend)
    forgotten = host.with_(due_at=None, message="nobody will look at it again")
    plan = Plan((Step((forgotten,), wake=(f"instance/{host.id}",)),))
    with pytest.raises(Bug, match="nothing will look at it again"):
        door.take(NounsSnapshot(place.at, (host,)), plan)
    assert place.again(host) == host
    assert (place.woken, place.rung) == ([], [])


def test_a_request_that_lost_a_race_is_decided_again(place: Engine) -> None:
    (host,) = place.hosts(1)
    door = RequestCommitter(place.plane.read, wake=place.woken.extend, notify_agents=place.rung.extend)
    place.store.commit([nouns.put(host.with_(message="faster"))])
    with pytest.raises(Conflict):
        door.take(NounsSnapshot(place.at, (host,)), Plan((Step((host.with_(message="late"),), wake=("run/x",)),)))
    assert place.again(host).message == "faster"
    assert (place.woken, place.rung) == ([], [])


def test_a_request_has_no_effects_of_its_own(place: Engine) -> None:
    """They would run in the process that serves the request, which has no clouds' SDKs."""
    (host,) = place.hosts(1)
    door = RequestCommitter(place.plane.read, wake=place.woken.extend, notify_agents=place.rung.extend)
    effect = Describe(f"instance/{host.id}", host.offer.backend, 77)
    with pytest.raises(Bug, match="wake its unit instead"):
        door.take(NounsSnapshot(place.at, (host,)), Plan((Step((host.with_(message="x"),), effects=(effect,)),)))
