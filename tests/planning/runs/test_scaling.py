"""The scaler: examples as they are documented, rules that hold for any traffic, and a day at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.domain.instants import DAY, MINUTE, SECOND, Micros
from chalicelib.domain.services import BUCKET, HISTORY, STALE, Bucket, Scale, Traffic
from chalicelib.domain.specs.services import ScalingSpec
from chalicelib.planning.runs.scaling import GroupState, Scaling, scale
from tests.harness.examples import many

NOW: Micros = 1_790_000_000 * SECOND  # at the beginning of a bucket


def rule(metric: str = "rps", target: float = 5, **more: Any) -> ScalingSpec:
    return ScalingSpec.model_validate({"metric": metric, "target": target, **more})


def door(
    *requests: float, now: Micros = NOW, busy: float = 0.0, quiet: bool = False, name: str = "server", **more: Any
) -> Traffic:
    """A door that reports now: requests by bucket, the newest last."""
    first = now - len(requests) * BUCKET
    buckets = (Bucket(at=first + n * BUCKET, requests=int(each), busy=busy) for n, each in enumerate(requests))
    return Traffic(run_id="r", door=name, at=now, quiet=quiet, buckets=tuple(buckets), **more)


def at(desired: int, changed: Micros | None = None, **more: Any) -> Scale:
    return Scale(group="0", desired=desired, at=changed, **more)


def scaling(
    spec: ScalingSpec | None,
    bounds: tuple[int, int],
    *traffic: Traffic,
    state: Scale,
    seen: GroupState | None = None,
    now: Micros = NOW,
) -> Scaling:
    return scale(spec, bounds, traffic, state, seen or GroupState(ready=state.desired), now)


@pytest.mark.parametrize(
    ("window", "per_bucket", "target", "bounds", "current", "want"),
    [
        pytest.param("1m", [50] * 6, 5, (1, 8), 1, 1, id="five-a-second-fit-exactly"),
        pytest.param("1m", [50] * 5 + [51], 5, (1, 8), 1, 2, id="one-more-doesnt"),
        pytest.param("1m", [124] * 6, 5, (1, 8), 1, 3, id="rounded-up"),
        pytest.param("30s", [124] * 3, 5, (1, 8), 1, 3, id="half-a-minute"),
        pytest.param("5m", [124] * 30, 5, (1, 8), 1, 3, id="five-minutes"),
        pytest.param("5m", [0] * 27 + [500] * 3, 10, (1, 8), 1, 1, id="a-long-window-smooths"),
        pytest.param("30s", [0] * 27 + [500] * 3, 10, (1, 8), 1, 5, id="a-short-one-doesnt"),
        pytest.param("1m", [5000] * 6, 5, (1, 8), 1, 8, id="at-most-max"),
        pytest.param("1m", [1] * 6, 5, (2, 8), 4, 2, id="at-least-min"),
        pytest.param("1m", [0, 0, 0, 0, 0, 1], 1000, (0, 8), 0, 1, id="one-request-is-one-replica"),
        pytest.param("1m", [33] * 6, 1.1, (0, 8), 0, 3, id="a-target-no-float-holds-exactly"),
        pytest.param("1m", [1] * 6, 0.1, (0, 8), 0, 1, id="a-target-below-one"),
    ],
)
def test_requests_a_second(
    window: str, per_bucket: list[int], target: float, bounds: tuple[int, int], current: int, want: int
) -> None:
    spec = rule(target=target, window=window)
    assert scaling(spec, bounds, door(*per_bucket), state=at(current)).desired == want


@pytest.mark.parametrize(("per_bucket", "reason"), [(5000, "; 8 is the most"), (1, "; 2 is the fewest"), (200, "")])
def test_a_bound_that_decides_is_named(per_bucket: int, reason: str) -> None:
    result = scaling(rule(), (2, 8), door(*[per_bucket] * 6), state=at(4))
    assert result.why.partition(", 5 for each replica")[2] == reason


@pytest.mark.parametrize(("window", "reason"), [("30s", "30 s"), ("1m", "1 min"), ("5m", "5 min")])
def test_the_window_is_named(window: str, reason: str) -> None:
    busy, quiet = door(*[50] * 30), door(quiet=True)
    assert f" over {reason}, " in scaling(rule(window=window), (1, 8), busy, state=at(1)).why
    assert scaling(rule(window=window), (0, 8), quiet, state=at(1)).why == f"no requests for {reason}"


class TestDelays:
    def test_more_replicas_wait_for_the_delay_since_the_last_change(self) -> None:
        spec, busy = rule(), door(*[150] * 6)
        result = scaling(spec, (1, 8), busy, state=at(1, NOW - 299 * SECOND))
        assert (result.desired, result.wanted) == (1, 3)
        assert result.why == (
            "15 requests a second over 1 min, 5 for each replica: 2 more at 14:13:21 UTC because of scale_up_delay"
        )
        assert result.check_at == NOW + SECOND
        then = scaling(spec, (1, 8), busy, state=at(1, NOW - 300 * SECOND))
        assert then.desired == 3
        assert then.why == "15 requests a second over 1 min, 5 for each replica"

    def test_fewer_replicas_wait_longer(self) -> None:
        spec, busy = rule(), door(*[10] * 6)
        result = scaling(spec, (1, 8), busy, state=at(3, NOW - 599 * SECOND))
        assert (result.desired, result.wanted) == (3, 1)
        assert "2 fewer at 14:13:21 UTC because of scale_down_delay" in result.why
        assert scaling(spec, (1, 8), busy, state=at(3, NOW - 600 * SECOND)).desired == 1

    def test_from_zero_nothing_waits(self) -> None:
        waits = door(now=NOW, held=1)
        quiet = door(now=NOW, quiet=True, name="gateway")
        for doors in ([waits], [waits, quiet]):
            result = scaling(rule(), (0, 8), *doors, state=at(0, NOW - SECOND))
            assert (result.desired, result.why) == (1, "a request waits")

    def test_who_never_changed_waits_for_nothing(self) -> None:
        assert scaling(rule(), (1, 8), door(*[150] * 6), state=at(1)).desired == 3

    def test_no_delay_at_all(self) -> None:
        spec = rule(scale_up_delay="0s", scale_down_delay="0s")
        assert scaling(spec, (1, 8), door(*[150] * 6), state=at(1, NOW)).desired == 3
        assert scaling(spec, (1, 8), door(*[10] * 6), state=at(3, NOW)).desired == 1

    def test_the_bounds_never_wait(self) -> None:
        assert scaling(rule(), (4, 8), door(*[10] * 6), state=at(1, NOW)).desired == 4
        assert scaling(rule(), (0, 2), door(*[500] * 6), state=at(5, NOW)).desired == 2


class TestKnowingNothing:
    def test_a_fixed_number_is_what_is_configured(self) -> None:
        result = scaling(None, (3, 3), door(*[500] * 6), state=at(1))
        assert (result.desired, result.why, result.check_at) == (3, "", None)

    def test_nothing_seen_keeps_the_count(self) -> None:
        assert scaling(rule(), (1, 8), state=at(2)).desired == 2
        assert scaling(rule(), (3, 8), state=at(2)).desired == 3

    def test_who_was_never_called_keeps_no_more_than_the_fewest(self) -> None:
        spec = rule(scale_down_delay="2m")
        result = scaling(spec, (0, 8), state=at(2), seen=GroupState(2, since=NOW - 59 * SECOND))
        assert (result.desired, result.check_at) == (2, NOW + SECOND), "a window without a request isn't over"
        result = scaling(spec, (0, 8), state=at(2), seen=GroupState(2, since=NOW - MINUTE))
        assert (result.desired, result.why) == (0, "no requests yet")
        changed = at(2, NOW - MINUTE)
        assert scaling(spec, (0, 8), state=changed, seen=GroupState(2, since=NOW - DAY)).check_at == NOW + MINUTE
        assert scaling(spec, (1, 8), state=at(2), seen=GroupState(2, since=NOW - MINUTE)).desired == 1
        assert scaling(spec, (0, 8), state=at(2), seen=GroupState(1)).desired == 2, "another is still on its way"

    def test_a_silent_door_keeps_the_count_and_says_so_once(self) -> None:
        busy = door(*[150] * 6)
        stale_at = NOW + STALE + 1
        result = scaling(rule(), (0, 8), busy, state=at(2), now=stale_at)
        assert (result.desired, result.stale) == (2, True)
        assert result.why == "nothing heard from `server` since 14:13:20 UTC, so the number stays"
        state = result.after(at(2), stale_at)
        again = scaling(rule(), (0, 8), busy, state=state, now=stale_at + MINUTE)
        assert again.after(state, stale_at + MINUTE) is state

    def test_a_door_that_was_quiet_is_believed(self) -> None:
        quiet = door(*[0] * 6, quiet=True)
        result = scaling(rule(), (0, 8), quiet, state=at(2), now=NOW + 10 * STALE)
        assert (result.desired, result.why) == (0, "no requests for 1 min")

    def test_it_looks_again_when_a_busy_door_may_be_silent(self) -> None:
        assert scaling(rule(), (1, 8), door(*[10] * 6), state=at(1)).check_at == NOW + STALE + 1

    def test_one_door_lost_for_good_doesnt_keep_the_count_for_ever(self) -> None:
        lost = door(*[500] * 6, now=NOW - HISTORY - BUCKET, name="old")
        assert scaling(rule(), (1, 8), lost, door(*[10] * 6), state=at(8)).desired == 1
        assert scaling(rule(), (1, 8), lost, state=at(8)).desired == 8


class TestDoors:
    def test_all_doors_count_together(self) -> None:
        doors = [door(*[50] * 6, name=name) for name in ("a", "b", "c")]
        assert scaling(rule(), (1, 8), *doors, state=at(1)).desired == 3

    def test_a_window_ends_with_the_doors_last_report(self) -> None:
        """A pass between two reports mustn't take what isn't reported yet for silence."""
        assert scaling(rule(), (1, 8), door(*[150] * 6), state=at(3), now=NOW + 9 * SECOND).desired == 3

    def test_half_a_bucket_counts_for_half_a_bucket(self) -> None:
        half = door(*[150] * 6).with_(at=NOW + 5 * SECOND)
        full = [*half.buckets, Bucket(at=NOW, requests=75)]
        result = scaling(rule(), (1, 8), half.with_(buckets=tuple(full)), state=at(1), now=NOW + 5 * SECOND)
        assert result.why.startswith("15 requests a second")

    def test_what_is_under_way_counts_for_as_long_as_it_was(self) -> None:
        """In half of the window's first bucket, in the others, and in the one that has only begun."""
        busy = door(*[0] * 6, busy=4.0).with_(at=NOW + 5 * SECOND)
        full = [*busy.buckets, Bucket(at=NOW, requests=0, busy=4.0)]
        queue = rule("queue", 4, window="1m")
        result = scaling(queue, (1, 8), busy.with_(buckets=tuple(full)), state=at(1), now=NOW + 5 * SECOND)
        assert result.why.startswith("4 requests under way or waiting")


class TestToZero:
    spec = rule(scale_down_delay="2m")

    def test_after_a_whole_window_without_a_request(self) -> None:
        """One request, six buckets ago: half of that bucket is still in the window."""
        quiet = door(1, 0, 0, 0, 0, 0, quiet=True)
        before = scaling(self.spec, (0, 4), quiet, state=at(1, NOW - DAY), now=NOW + 5 * SECOND)
        assert before.desired == 1
        assert before.check_at == NOW + 15 * SECOND
        assert scaling(self.spec, (0, 4), quiet, state=at(1, NOW - DAY), now=NOW + 10 * SECOND).desired == 0

    def test_not_while_anything_is_under_way(self) -> None:
        """A stream that has lasted for longer than the window."""
        result = scaling(self.spec, (0, 4), door(0, 0, 0, 0, 0, 0, busy=1.0), state=at(1, NOW - DAY))
        assert result.desired == 1

    def test_not_while_an_engine_has_requests(self) -> None:
        result = scaling(self.spec, (0, 4), door(quiet=True), state=at(1, NOW - DAY), seen=GroupState(1, waiting=1))
        assert result.desired == 1

    def test_not_before_the_delay(self) -> None:
        result = scaling(self.spec, (0, 4), door(quiet=True), state=at(1, NOW - MINUTE))
        assert (result.desired, result.wanted, result.check_at) == (1, 0, NOW + MINUTE)

    def test_it_looks_again_when_the_delay_is_over(self) -> None:
        result = scaling(self.spec, (0, 4), door(*[1] * 6, quiet=True), state=at(1, NOW - MINUTE))
        assert (result.desired, result.check_at) == (1, NOW + MINUTE)

    def test_nothing_to_look_at_with_none_left(self) -> None:
        assert scaling(self.spec, (0, 4), door(quiet=True), state=at(0, NOW)).check_at is None


class TestQueue:
    def test_it_counts_what_is_under_way_held_and_waiting_inside_engines(self) -> None:
        spec = rule("queue", 4)
        result = scaling(spec, (1, 8), door(*[9] * 6, busy=8.0), state=at(2), seen=GroupState(2, waiting=3))
        assert result.why == "11 requests under way or waiting over 1 min, 4 for each replica"
        assert result.desired == 3

    def test_a_sudden_rise_doesnt_wait(self) -> None:
        rise = self._rise(busy=40.0)
        result = scaling(rule("queue", 4), (1, 20), rise, state=at(2, NOW - SECOND))
        assert (result.desired, result.panic_until) == (10, NOW + MINUTE)
        assert result.why.endswith("after a sudden rise: none is removed before 14:14:20 UTC")
        within = scaling(rule("queue", 4), (1, 20), self._rise(1.0), state=at(2, NOW), seen=GroupState(2, waiting=39))
        assert (within.desired, within.panic_until) == (10, NOW + MINUTE)

    def test_less_than_twice_the_ready_replicas_is_no_sudden_rise(self) -> None:
        assert scaling(rule("queue", 4), (1, 20), self._rise(busy=12.0), state=at(2, NOW - SECOND)).desired == 2

    def test_none_leave_for_a_whole_window_after_it(self) -> None:
        spec = rule("queue", 4, scale_up_delay="0s", scale_down_delay="0s")
        state = at(10, NOW - 59 * SECOND, panic_until=NOW + SECOND)
        calm = door(*[1] * 6, busy=1.0)
        result = scaling(spec, (1, 20), calm, state=state)
        assert (result.desired, result.wanted) == (10, 1)
        assert "because of a recent sudden rise" in result.why
        next_report = calm.with_(at=NOW + SECOND)
        assert scaling(spec, (1, 20), next_report, state=state, now=NOW + SECOND).desired == 1

    def test_what_needs_as_many_as_there_are_doesnt_end_it(self) -> None:
        for panic_until in (None, NOW + SECOND):
            state = at(10, NOW - 59 * SECOND, panic_until=panic_until)
            result = scaling(rule("queue", 4), (1, 20), door(*[1] * 6, busy=40.0), state=state, seen=GroupState(10))
            assert (result.desired, result.panic_until) == (10, panic_until)

    @pytest.mark.parametrize(("window", "buckets"), [("30s", 1), ("1m", 1), ("5m", 3)])
    def test_its_window_is_a_tenth_in_whole_buckets(self, window: str, buckets: int) -> None:
        """The rise fills that tenth: one bucket less, and it's no sudden rise any more."""
        spec = rule("queue", 10, window=window)
        for filled, want in ((buckets, True), (buckets - 1, False)):
            series = (0.0,) * (30 - filled) + (11.0,) * filled
            rise = Traffic(
                run_id="r",
                door="server",
                at=NOW,
                buckets=tuple(Bucket(at=NOW - (30 - n) * BUCKET, requests=1, busy=b) for n, b in enumerate(series)),
            )
            assert (scaling(spec, (1, 20), rise, state=at(1, NOW)).panic_until is not None) is want

    def test_requests_a_second_know_no_sudden_rise(self) -> None:
        assert scaling(rule(), (1, 20), self._rise(busy=40.0), state=at(2, NOW - SECOND)).panic_until is None

    def _rise(self, busy: float) -> Traffic:
        calm = door(*[4] * 6, busy=1.0)
        return calm.with_(buckets=(*calm.buckets[:-1], calm.buckets[-1].with_(busy=busy)))


def test_figures_alone_change_nothing_that_is_kept() -> None:
    """Or a busy service would write its run every ten seconds."""
    first = scaling(rule(), (1, 8), door(*[124] * 6), state=at(3))
    state = first.after(at(3), NOW)
    assert state.why
    again = scaling(rule(), (1, 8), door(*[131] * 6), state=state)
    assert again.after(state, NOW + BUCKET) is state
    more = scaling(rule(), (1, 8), door(*[160] * 6), state=state).after(state, NOW + BUCKET)
    assert (more.desired, more.at) == (4, NOW + BUCKET)


# --- rules for any traffic -------------------------------------------------------------------------------------------


@dataclass
class Played:
    """One service and one door, bucket by bucket."""

    spec: ScalingSpec
    bounds: tuple[int, int]
    state: Scale
    buckets: list[Bucket] = field(default_factory=list)
    now: Micros = NOW

    def go(self, requests: int, busy: float) -> tuple[Scale, Scaling, Scale]:
        """One more bucket; the state before, the answer, and the state after."""
        self.buckets = [*self.buckets[-29:], Bucket(at=self.now, requests=requests, busy=busy)]
        self.now += BUCKET
        traffic = Traffic(
            run_id="r", door="server", at=self.now, quiet=not (requests or busy), buckets=tuple(self.buckets)
        )
        before = self.state
        result = scale(self.spec, self.bounds, (traffic,), before, GroupState(ready=before.desired), self.now)
        self.state = result.after(before, self.now)
        return before, result, self.state


specs = st.builds(
    lambda metric, target, window, up, down: rule(
        metric, target, window=window, scale_up_delay=up, scale_down_delay=down
    ),
    st.sampled_from(("rps", "queue")),
    st.sampled_from((0.1, 1, 3, 7.5)),
    st.sampled_from((30, 60, 300)),
    st.sampled_from((0, 20, 300)),
    st.sampled_from((0, 45, 600)),
)
bounds_ = st.tuples(st.integers(0, 3), st.integers(0, 9)).map(lambda pair: (pair[0], pair[0] + pair[1]))
# Runs of buckets alike, so that long silences are as common as rises: how many, the requests, and how busy.
loads = st.lists(st.tuples(st.integers(1, 20), st.sampled_from((0, 0, 1, 40, 900)), st.sampled_from((0, 0.5, 30))))


def played(spec: ScalingSpec, bounds: tuple[int, int], series: list[tuple[int, int, float]]) -> Iterator[Any]:
    game = Played(spec, bounds, at(bounds[0]))
    for count, requests, busy in series:
        for _ in range(count):
            yield (game, *game.go(requests, busy))


@settings(max_examples=many(100), deadline=None)
@given(specs, bounds_, loads)
@pytest.mark.slow
def test_its_promises_hold_for_any_traffic(spec: Any, bounds: tuple[int, int], series: Any) -> None:
    """Within the bounds; no change before its delay but from zero and for a sudden rise; to zero only after a window
    of nothing; and while something waits, there is a time to look again."""
    for game, before, result, after in played(spec, bounds, series):
        assert bounds[0] <= result.desired <= bounds[1]
        passed = None if before.at is None else game.now - before.at
        if result.desired > before.desired and before.desired and passed is not None and result.panic_until is None:
            assert passed >= spec.scale_up_delay * SECOND
        if result.desired < before.desired:
            assert passed is None or passed >= spec.scale_down_delay * SECOND
            assert before.panic_until is None or before.panic_until <= game.now
        if result.desired == 0 and before.desired:
            window = [b for b in game.buckets if b.at + BUCKET > game.now - (spec.window or 60) * SECOND]
            assert not any(b.requests for b in window)
            assert not window[-1].busy
        if result.wanted is not None:
            assert result.desired == before.desired != result.wanted
            assert result.check_at is not None
        assert result.check_at is None or result.check_at > game.now
        assert after.desired == result.desired


@settings(max_examples=many(100), deadline=None)
@given(specs, bounds_, loads, st.integers(0, 12), st.sampled_from((None, 0, 30, 900)))
def test_more_load_never_means_fewer_replicas(
    spec: Any, bounds: tuple[int, int], series: Any, desired: int, since: int | None
) -> None:
    state = at(desired, None if since is None else NOW - since * SECOND)
    flat = [(requests, busy) for count, requests, busy in series for _ in range(count)][-30:]
    buckets = [Bucket(at=NOW - (len(flat) - n) * BUCKET, requests=r, busy=b) for n, (r, b) in enumerate(flat)]
    less = Traffic(run_id="r", door="server", at=NOW, buckets=tuple(buckets))
    more = less.with_(
        buckets=tuple(b.with_(requests=b.requests + n % 3, busy=b.busy + n % 2) for n, b in enumerate(buckets))
    )
    found = [scale(spec, bounds, (each,), state, GroupState(ready=1), NOW).desired for each in (less, more)]
    assert found[0] <= found[1]


@pytest.mark.slow
def test_through_a_day_replicas_come_and_go_with_the_traffic() -> None:
    """Day and night, a decision every ten seconds, the longest window."""
    spec = rule("queue", 4, window="5m", scale_up_delay="1m", scale_down_delay="10m")
    game = Played(spec, (0, 12), at(0))
    counts, changes = [], 0
    for n in range(DAY // BUCKET):
        hour = n * BUCKET / DAY * 24
        busy = 0.0 if hour < 6 or hour > 22 else 40 * (1 - abs(hour - 14) / 8)
        before, result, _ = game.go(int(busy * 3), busy)
        changes += result.desired != before.desired
        counts.append(result.desired)
    assert counts[0] == 0
    assert counts[-1] == 0
    assert max(counts) == 10
    assert 15 <= changes <= 24
