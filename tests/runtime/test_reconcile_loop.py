"""The embedded server's threads: what ticks, and what executes effects. Each test ends when its event has happened."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from queue import Queue

from chalicelib.errors import StorageFull
from chalicelib.planning.kernel.plan import Effect
from chalicelib.planning.kernel.purchases import Describe, Terminate
from chalicelib.planning.kernel.workflows import DoStep
from chalicelib.runtime.effect_pools import STEPS, EffectPool, EffectPools
from chalicelib.runtime.reconcile_loop import ReconcileLoop
from chalicelib.runtime.ticker import Ticker
from tests.world.time import Clock

LONG = 300.0  # seconds that a test waits for what must come
NEVER = 3600.0


class Recorded:
    """Passes that wake another unit, once."""

    def __init__(self, pause: float) -> None:
        self.loop = ReconcileLoop(Clock(), lambda: None, pause=pause)
        self.passes: Queue[list[str]] = Queue()

    def run(self, units: Iterable[str]) -> None:
        hints = list(units)
        if hints == ["run/1"]:
            self.loop.wake(["run/2"])
            self.loop.wake(["run/3"])
        self.passes.put(hints)


def test_a_pass_begins_at_once_and_the_next_one_once_wake_ups_have_gathered() -> None:
    recorded = Recorded(pause=NEVER)
    recorded.loop.wake(["run/1"])
    recorded.loop.start(recorded)
    assert recorded.passes.get(timeout=LONG) == ["run/1"]
    recorded.loop.stop()  # it doesn't wait for the pause to end
    assert recorded.passes.empty()


def test_a_pass_takes_all_wake_ups_since_the_one_before() -> None:
    recorded = Recorded(pause=0.0)
    recorded.loop.wake(["run/1"])
    recorded.loop.start(recorded)
    assert [recorded.passes.get(timeout=LONG) for _ in range(2)] == [["run/1"], ["run/2", "run/3"]]
    recorded.loop.stop()


class Full:
    """Passes on a full disk."""

    def __init__(self, pause: float) -> None:
        self.loop = ReconcileLoop(Clock(), lambda: 0, pause=0.0, full_disk=pause)
        self.passes: Queue[list[str]] = Queue()

    def run(self, units: Iterable[str]) -> None:
        self.passes.put(list(units))
        raise StorageFull("the disk is full.")


def test_a_full_disk_is_tried_again_with_the_same_wake_ups_after_a_pause() -> None:
    full = Full(pause=0.0)
    full.loop.wake(["run/1"])
    full.loop.start(full)
    assert [full.passes.get(timeout=LONG) for _ in range(3)] == [["run/1"]] * 3
    full.loop.stop()
    full = Full(pause=NEVER)
    full.loop.start(full)
    full.passes.get(timeout=LONG)
    full.loop.stop()
    assert full.passes.empty(), "what is due doesn't make it try again and again"


def test_passes_go_on_when_the_store_cant_say_what_is_due() -> None:
    def unknown() -> None:
        raise OSError("the disk is away")

    loop, passes = ReconcileLoop(Clock(), unknown, pause=0.0), Queue[list[str]]()

    class Passes:
        def run(self, units: Iterable[str]) -> None:
            passes.put(list(units))

    loop.start(Passes())
    assert passes.get(timeout=LONG) == passes.get(timeout=LONG) == []
    assert not loop.problem()
    loop.stop()


def test_a_ticker_that_begins_at_once_may_be_waited_for_and_is_not_when_it_is_slow() -> None:
    answer = threading.Event()
    ticker = Ticker(NEVER, lambda: answer.wait(LONG), at_once=True)
    ticker.start()
    assert not ticker.wait_first(0.01)  # a provider that takes its time holds nobody up
    answer.set()
    assert ticker.wait_first(LONG)
    ticker.stop()


def test_a_turn_that_is_asked_for_comes_at_once() -> None:
    turns: Queue[int] = Queue()
    ticker = Ticker(NEVER, lambda: turns.put(1))
    ticker.start()
    for _ in range(2):
        ticker.now()
        assert turns.get(timeout=LONG)
    ticker.stop()


def test_work_that_rests_goes_on_unless_another_turn_is_wanted() -> None:
    rested: Queue[bool] = Queue()
    ticker = Ticker(NEVER, lambda: rested.put(ticker.pause(0.0)) or rested.put(ticker.pause(LONG)), at_once=True)
    ticker.start()
    assert rested.get(timeout=LONG)
    ticker.now()
    assert not rested.get(timeout=LONG)
    assert rested.get(timeout=LONG)  # of the turn that was wanted
    ticker.stop()


def test_a_failure_is_a_turn_too_and_the_next_one_comes() -> None:
    turns: Queue[int] = Queue()

    def work() -> None:
        turns.put(turns.qsize())
        raise RuntimeError("the provider is away")

    ticker = Ticker(0.0, work, at_once=True)
    ticker.start()
    assert ticker.wait_first(LONG)
    assert [turns.get(timeout=LONG) for _ in range(3)]
    ticker.stop()


def test_a_ticker_that_was_stopped_before_its_first_turn_does_nothing() -> None:
    turns: list[int] = []
    ticker = Ticker(NEVER, lambda: turns.append(1))
    ticker.stop()
    ticker.start()
    for thread in threading.enumerate():
        if thread.name == "ticker":
            thread.join(LONG)
    assert turns == []


def test_effects_that_come_before_the_start_are_executed_after_it_in_order() -> None:
    done: Queue[Effect] = Queue()
    pool = EffectPool()
    first, second, third = (Describe(f"instance/{n}", "aws", 1) for n in range(3))
    pool.submit(first)
    pool.submit(second)
    assert done.empty()
    pool.start(done.put)
    pool.submit(third)
    assert {done.get(timeout=LONG) for _ in range(3)} == {first, second, third}
    pool.stop()


def test_effects_on_one_unit_are_executed_one_at_a_time_and_a_failure_holds_up_none() -> None:
    done: Queue[str] = Queue()
    busy = threading.Lock()

    def execute(effect: Effect) -> None:
        assert busy.acquire(blocking=False), "two at once"
        try:
            done.put(type(effect).__name__)
            if done.qsize() == 1:
                raise RuntimeError("the cloud is away")
        finally:
            busy.release()

    pool = EffectPool()
    pool.start(execute)
    for effect in (Describe("instance/1", "aws", 1), Terminate("instance/1", "aws", 2)):
        pool.submit(effect)
    assert [done.get(timeout=LONG) for _ in range(2)] == ["Describe", "Terminate"]
    pool.stop()


def test_projects_take_turns() -> None:
    """Sixty orders of one project are waiting when another's first comes."""
    done: Queue[Effect] = Queue()
    pool = EffectPool(threads=1)
    for number in range(60):
        pool.submit(Describe(f"instance/{number}", "aws", 1, "large"))
    first = Describe("instance/first", "aws", 1, "small")
    pool.submit(first)
    pool.start(done.put)
    executed = [done.get(timeout=LONG) for _ in range(61)]
    assert executed.index(first) == 1
    assert [effect.unit for effect in executed if effect is not first] == [f"instance/{n}" for n in range(60)]
    pool.stop()


def test_a_project_whose_hosts_never_answer_leaves_threads_to_the_others() -> None:
    """Each of its effects holds a thread until the end."""
    begun: Queue[str] = Queue()
    over = threading.Event()

    def execute(effect: Effect) -> None:
        begun.put(effect.project_id)
        if effect.project_id != "good":
            over.wait(LONG)

    pool = EffectPool(threads=8)
    pool.start(execute)
    for project in ("bad", "worse"):
        for number in range(50):
            pool.submit(Describe(f"instance/{project}-{number}", "ssh", 1, project))
    assert Counter(begun.get(timeout=LONG) for _ in range(6)) == {"bad": 4, "worse": 2}
    for number in range(10):
        pool.submit(Describe(f"instance/{number}", "aws", 1, "good"))
    assert [begun.get(timeout=LONG) for _ in range(10)] == ["good"] * 10
    over.set()
    assert Counter(begun.get(timeout=LONG) for _ in range(94)) == {"bad": 46, "worse": 48}, "nothing is forgotten"
    pool.stop()


def test_twenty_hosts_are_added_at_once_and_keep_no_call_to_a_cloud_waiting() -> None:
    begun: Queue[str] = Queue()
    over = threading.Event()

    def execute(effect: Effect) -> None:
        begun.put(effect.unit)
        if effect.project_id == "hosts":
            over.wait(LONG)

    effects = EffectPools()
    effects.start(execute)
    steps = [DoStep(f"workflow/{number}", "ssh", 1, "hosts", step="install") for number in range(100)]
    for step in steps:
        effects.submit(step)
    alone = STEPS // 2
    assert {begun.get(timeout=LONG) for _ in range(alone)} == {step.unit for step in steps[:alone]} and alone > 20
    effects.submit(DoStep("workflow/other", "ssh", 1, "other", step="install"))
    effects.submit(Describe("instance/1", "aws", 1, "other"))
    assert {begun.get(timeout=LONG) for _ in range(2)} == {"workflow/other", "instance/1"}, "whose turn it is"
    over.set()
    assert {begun.get(timeout=LONG) for _ in steps[alone:]} == {step.unit for step in steps[alone:]}
    effects.stop()
