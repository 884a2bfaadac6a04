"""One group of a service, step by step: who comes, who goes, and what a bad new version changes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.job_specs import ProbeSpec
from chalicelib.domain.services import Traffic
from chalicelib.planning.runs.rollout import TO_LOAD, LiveGroup, LiveReplica, Standing, is_drained, ready_by, roll
from tests.harness.examples import many

NOW: Micros = 1_790_000_000 * SECOND


def old(num: int, standing: Standing = Standing.serving, **more: bool) -> LiveReplica:
    return LiveReplica(num, standing, current=False, **more)


def new(num: int, standing: Standing = Standing.serving, **more: bool) -> LiveReplica:
    return LiveReplica(num, standing, **more)


def test_what_is_missing_is_created() -> None:
    steps = roll(LiveGroup(3, [new(0)]))
    assert (steps.create, steps.revive) == (2, ())


def test_numbers_of_replicas_that_have_ended_come_first() -> None:
    steps = roll(LiveGroup(4, [new(1)], free=(5, 0)))
    assert (steps.create, steps.revive) == (3, (0, 5))


def test_enough_is_enough() -> None:
    assert roll(LiveGroup(2, [new(0), new(1, Standing.submitted)])) == roll(LiveGroup(0, []))


class TestWhoGoes:
    @pytest.mark.parametrize(
        ("desired", "members", "want"),
        [
            pytest.param(1, [new(0), new(1), new(2)], {2, 1}, id="the-highest-numbers"),
            pytest.param(2, [new(0, Standing.submitted), new(1), new(2)], {0}, id="those-that-wait-for-a-machine"),
            pytest.param(
                2,
                [new(0, Standing.starting), new(1, Standing.running), new(2, Standing.submitted), new(3)],
                {0, 2},
                id="those-that-matter-least",
            ),
            pytest.param(1, [old(0), new(1), new(2)], {0, 2}, id="the-old-version"),
            pytest.param(0, [new(0), new(1, Standing.starting)], {0, 1}, id="all-of-a-group-that-is-gone"),
            pytest.param(3, [old(0, Standing.running), old(1), old(2)], {0}, id="old-ones-that-serve-nobody"),
        ],
    )
    def test_the_worst(self, desired: int, members: list[LiveReplica], want: set[int]) -> None:
        steps = roll(LiveGroup(desired, members))
        assert {*steps.stop, *steps.drain} == want

    def test_who_gets_requests_is_drained_and_others_are_stopped(self) -> None:
        steps = roll(LiveGroup(0, [new(0), new(1, Standing.running), new(2, Standing.submitted)]))
        assert (steps.drain, steps.stop) == ((0,), (2, 1))

    def test_who_is_drained_is_stopped_when_let_go(self) -> None:
        waits, goes = new(1, draining=True), new(2, draining=True, drained=True)
        assert roll(LiveGroup(1, [new(0), waits, goes])).stop == (2,)

    def test_as_many_stay_serving_as_are_asked_for_even_if_they_are_old(self) -> None:
        """Two new ones are on their way when the count falls to two: they go, not those that serve."""
        members = [old(0), old(1), new(2, Standing.starting), new(3, Standing.starting)]
        steps = roll(LiveGroup(2, members))
        assert steps.stop == (3,)
        assert not steps.drain


class TestANewVersion:
    def test_one_more_is_created_then_one_old_goes_then_the_next_is_created(self) -> None:
        assert roll(LiveGroup(2, [old(0), old(1)])).create == 1
        assert roll(LiveGroup(2, [old(0), old(1), new(2, Standing.running)])) == roll(LiveGroup(0, []))
        assert roll(LiveGroup(2, [old(0), old(1), new(2)])).drain == (1,)
        assert roll(LiveGroup(2, [old(0), old(1, draining=True), new(2)])).create == 0
        assert roll(LiveGroup(2, [old(0), new(2)], leaving=1, free=(1,))).create == 0
        assert roll(LiveGroup(2, [old(0), new(2)], free=(1,))).revive == (1,)

    def test_old_ones_that_serve_nobody_are_replaced_at_once(self) -> None:
        steps = roll(LiveGroup(2, [old(0, Standing.running), old(1, Standing.submitted)]))
        assert (steps.create, set(steps.stop)) == (2, {0, 1})

    def test_a_bad_one_leaves_everything_as_it_is(self) -> None:
        steps = roll(LiveGroup(2, [old(0), old(1, Standing.running)], failed=True))
        assert steps.held
        assert (steps.create, steps.stop, steps.drain) == (0, (), ())

    def test_fewer_may_go_even_then(self) -> None:
        assert roll(LiveGroup(1, [old(0), old(1)], failed=True)).drain == (1,)
        assert roll(LiveGroup(0, [old(0)], failed=True)).drain == (0,)

    def test_with_no_old_one_left_it_is_an_ordinary_failure(self) -> None:
        assert not roll(LiveGroup(2, [new(0)], failed=True)).held


class TestDraining:
    def test_each_door_must_have_let_it_go(self) -> None:
        doors = [Traffic(run_id="r", door="a", at=NOW, let_go=("j",)), Traffic(run_id="r", door="b", at=NOW)]
        assert not is_drained("j", NOW, 300 * SECOND, doors, NOW + SECOND)
        assert is_drained("j", NOW, 300 * SECOND, doors[:1], NOW + SECOND)

    def test_without_a_door_its_time_decides(self) -> None:
        assert not is_drained("j", NOW, 300 * SECOND, (), NOW + 59 * SECOND)
        assert is_drained("j", NOW, 300 * SECOND, (), NOW + 60 * SECOND)
        assert is_drained("j", NOW, 5 * SECOND, (), NOW + 5 * SECOND)


# --- any history -----------------------------------------------------------------------------------------------------


@dataclass
class Played:
    """A group whose replicas start, serve and leave, as it is decided."""

    desired: int
    members: dict[int, LiveReplica] = field(default_factory=dict)
    leaving: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    failed: bool = False

    def take_step(self) -> None:
        """Take one step, and check what no step may do."""
        serving = sum(member.serves for member in self.members.values())
        steps = roll(
            LiveGroup(self.desired, tuple(self.members.values()), len(self.leaving), self.failed, tuple(self.ended))
        )
        assert not {*steps.drain} & {*steps.stop}
        assert {*steps.drain, *steps.stop} <= set(self.members)
        assert set(steps.revive) <= self.ended
        assert not (steps.create and (steps.held or any(self.members[num].current for num in steps.stop)))
        for num in steps.drain:
            self.members[num] = LiveReplica(num, Standing.serving, self.members[num].current, draining=True)
        for num in steps.stop:
            del self.members[num]
            self.leaving.add(num)
        fresh = range(max([-1, *self.members, *self.leaving, *self.ended]) + 1, 10_000)
        for num in [*steps.revive, *fresh[: steps.create - len(steps.revive)]]:
            self.ended.discard(num)
            self.members[num] = new(num, Standing.submitted)
        staying = [member for member in self.members.values() if not member.draining]
        assert len(staying) <= self.desired + 1
        assert sum(member.serves for member in staying) >= min(serving, self.desired)

    def happens(self, what: str, which: int) -> None:
        live = sorted(self.members)
        if what == "desire":
            self.desired = which % 6
        elif what == "apply":
            self.failed = False
            self.members = {num: old(num, m.standing, draining=m.draining) for num, m in self.members.items()}
        elif what == "gone":
            self.ended |= self.leaving
            self.leaving.clear()
        elif live:
            self._one(what, self.members[live[which % len(live)]])

    def _one(self, what: str, member: LiveReplica) -> None:
        if what == "advance" and not member.draining and member.standing < Standing.serving:
            self.members[member.num] = LiveReplica(member.num, Standing(member.standing + 1), member.current)
        elif what == "let go" and member.draining:
            self.members[member.num] = LiveReplica(
                member.num, member.standing, member.current, draining=True, drained=True
            )
        elif what == "die":
            del self.members[member.num]
            self.ended.add(member.num)
            self.failed |= member.current


happenings = st.lists(
    st.tuples(st.sampled_from(("desire", "apply", "gone", "advance", "advance", "let go", "die")), st.integers(0, 11)),
    max_size=60,
)


@settings(max_examples=many(100), deadline=None)
@given(st.integers(0, 5), happenings)
@pytest.mark.slow
def test_no_step_breaks_a_promise_and_every_rollout_ends(desired: int, history: list[tuple[str, int]]) -> None:
    """Never more than one above what is asked, never fewer serving than are asked and could. Once nothing fails any
    more, there are exactly as many as are asked for, all of the new version."""
    game = Played(desired)
    for what, which in history:
        game.happens(what, which)
        game.take_step()
    game.happens("apply", 0)
    for _ in range(60):
        for num in sorted(game.members):
            game.happens("advance", sorted(game.members).index(num))
            game.happens("let go", sorted(game.members).index(num))
        game.happens("gone", 0)
        game.take_step()
    assert [member.standing for member in game.members.values()] == [Standing.serving] * game.desired
    assert all(member.current for member in game.members.values())


def test_a_replica_is_late_once_its_probes_have_had_twice_their_time() -> None:
    quick = ProbeSpec(type="http", url="/", timeout=1, interval=2, ready_after=1)
    slow = quick.with_(timeout=10, ready_after=3)
    for probes, seconds in (((), 0), ((quick,), 6), ((quick, slow), 72)):
        assert ready_by(probes, NOW) == NOW + TO_LOAD + seconds * SECOND
