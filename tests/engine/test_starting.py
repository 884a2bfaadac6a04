"""The start of a task on several nodes as a workflow: an execution follows the gang, stage by stage, and never leads it
astray."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from chalicelib.backends.registry import built, facts_of
from chalicelib.domain.gangs import Gang, GangStatus
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.domain.reasons import JobReason, RunReason
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.engine import asl
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.effects.executions import send
from chalicelib.engine.execute import Executor
from chalicelib.engine.executions import StartCalls
from chalicelib.engine.load import Loader
from chalicelib.engine.log_context import ids
from chalicelib.engine.read import Reader
from chalicelib.machines.gang import LONGEST_WAIT, TO_MEET
from chalicelib.machines.job import PULL_TIMEOUT, TO_START
from chalicelib.machines.volume import TO_ATTACH
from chalicelib.planning.kernel.executions import CANCELLED, AnswerExecution, StartExecution, StepCall
from chalicelib.planning.kernel.plan import Effect
from chalicelib.planning.placing.gang_workflow import START_CLUSTER, GangStart, reached, stage
from chalicelib.planning.runs.gang_executions import start_answer
from chalicelib.planning.runs.snapshot import RunSnapshot
from chalicelib.store.port import Change, Put
from tests.engine.test_gang_purchases import SMALL, World, gang
from tests.world import nouns as b
from tests.world.gangs import cluster, jobs_of, task
from tests.world.nouns import PROJECT
from tests.world.step_functions import TIMEOUT, CutOff, Execution, StepFunctions

QUEUE = f"queue/{PROJECT}"
STAGES = [step.name for step in START_CLUSTER.steps]
MACHINE = asl.render(START_CLUSTER)


class Plane(World):
    """An engine beside executions that call its function; with hosts, or a cloud that sells machines."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.called: list[tuple[str, bool]] = []
        self.executions = StepFunctions({START_CLUSTER.name: MACHINE}, self.clock.now, self.invoked)
        self.loses: Callable[[Effect], bool] = lambda effect: False

    def submit(self, effect: Effect) -> None:
        if not isinstance(effect, StartExecution | AnswerExecution):
            super().submit(effect)
        elif not self.loses(effect):
            send(self.executions, effect)

    def passes(self, *units: str) -> None:
        done = self.reconciler().run([QUEUE, *units])
        assert not done.failed, done.failed

    def invoked(self, payload: Mapping[str, Any]) -> Mapping[str, str]:
        """What the state machine's function does."""
        self.called.append((payload["step"], payload["undo"]))
        here = EffectContext(self.store, self, self.plane.backends, "install", b"k" * 32, executions=self.executions)
        load = Loader(Reader(self.store), self.plane.catalog, self.plane.backends)
        executor = Executor(here, load, wake=self.woken.extend)

        def reconcile(units: Sequence[str]) -> None:
            assert ids()["run_id"] in payload["workflow"], "what is logged meanwhile names the run"
            self.reconciler().run(units, kinds=())

        starting = StartCalls(executor, reconcile)
        call = StepCall(payload["step"], payload["undo"], payload.get("token", ""))
        return starting.call(payload["workflow"], call)

    def execution(self, run: Run, attempt: int = 0) -> Execution:
        return self.executions.executions[f"{run.id}-0-0-{attempt}"]

    def drain(self) -> None:
        while (due := self.executions.next_due) is not None:
            self.at = max(self.at, due)
            self.executions.run()

    def held(self) -> list[str]:
        return [each.name for each in self.machines if each.claims]


LAST = frozenset({"cloud-2"})


def waiting(plane: Plane | None = None) -> tuple[Plane, Run]:
    """A start that waits at the barrier for the report of its last machine."""
    plane = plane or Plane.with_fleet()
    run = task(plane, "train", 3, **SMALL)
    plane.woken.append(QUEUE)
    plane.until(lambda: len(plane.machines) == 3 and gang(plane, run).status is GangStatus.sealed, absent=LAST)
    for _ in range(8):
        plane.take_pass(absent=LAST)
        plane.executions.run()
    return plane, run


def goes_on(plane: Plane, run: Run) -> None:
    """It reports."""
    for _ in range(3):
        plane.take_pass()
    assert gang(plane, run).status is GangStatus.released


@pytest.mark.parametrize("nodes", [2, 31, pytest.param(200, marks=pytest.mark.slow)])
def test_an_execution_follows_a_start_to_its_end(nodes: int) -> None:
    plane = Plane.in_memory()
    cluster(plane, nodes)
    run = task(plane, "train", nodes)
    plane.passes(f"run/{run.id}")
    plane.drain()
    assert gang(plane, run).status is GangStatus.released
    assert plane.execution(run).ended == "SUCCEEDED"
    assert plane.called == [(name, False) for name in STAGES], "each stage is asked for once, however many nodes"


@pytest.mark.slow
def test_it_makes_the_stages_itself_if_no_pass_comes() -> None:
    """Whoever claimed the first places has died; an execution was begun."""
    plane = Plane.in_memory()
    cluster(plane, 70)
    run = task(plane, "train", 70)
    commit = plane.store.commit

    def dies_after(changes: Sequence[Change]) -> None:
        commit(changes)
        if any(isinstance(change, Put) and change.record.key.sk.startswith("gang") for change in changes):
            plane.store.commit = died

    def died(changes: Sequence[Change]) -> None:
        raise Died

    plane.store.commit = dies_after
    with pytest.raises(Died):
        for _ in range(5):
            plane.passes(f"run/{run.id}")
    plane.store.commit = commit
    assert len(gang(plane, run).places) == 30
    plane.drain()
    assert gang(plane, run).status is GangStatus.released
    assert plane.execution(run).ended == "SUCCEEDED"


class Died(BaseException):
    """The process is gone."""


@pytest.mark.slow
def test_a_stage_that_waits_is_told_by_the_look_that_finds_it_over() -> None:
    plane, run = waiting()
    assert (plane.execution(run).state, gang(plane, run).awaits) == ("barrier", "barrier")
    called = list(plane.called)
    assert called == [(name, False) for name in STAGES[:4]], "and nothing asks again while it waits"
    goes_on(plane, run)
    assert gang(plane, run).token == ""
    plane.drain()
    assert plane.execution(run).ended == "SUCCEEDED"
    assert plane.called == [*called, ("publish", False), ("release", False)]


@pytest.mark.slow
def test_it_costs_two_more_writes_at_most_for_each_stage() -> None:
    def written(plane: Plane) -> int:
        number, commit = [0], plane.store.commit

        def count(changes: Sequence[Change]) -> None:
            number[0] += len(changes)
            commit(changes)

        plane.store.commit = count
        _, run = waiting(plane)
        goes_on(plane, run)
        plane.drain()
        return number[0]

    driven, alone = Plane.with_fleet(), Plane.with_fleet()
    alone.loses = lambda effect: True
    assert 0 < written(driven) - written(alone) <= 2 * len(STAGES)


@pytest.mark.slow
def test_the_run_says_at_which_stage_its_start_is() -> None:
    plane, run = waiting()
    message = "starting its nodes together, stage 4 of 6: wait until each node has an address"
    assert plane.again(run).message == message
    goes_on(plane, run)
    plane.take_pass()
    assert plane.again(run).message == ""


def test_a_lost_start_costs_nothing() -> None:
    plane = Plane.with_fleet()
    plane.loses = lambda effect: isinstance(effect, StartExecution)
    _, run = waiting(plane)
    goes_on(plane, run)
    assert plane.executions.executions == {}


@pytest.mark.parametrize("twice", ["at once", "after its reply was lost"])
@pytest.mark.parametrize("at", STAGES)
@pytest.mark.slow
def test_a_call_that_comes_twice_changes_nothing(at: str, twice: str) -> None:
    plane, seen = Plane.with_fleet(), list[str]()
    perform = plane.executions.invoke

    def invoked(payload: Mapping[str, Any]) -> Mapping[str, str]:
        seen.append(payload["step"])
        answer = perform(payload)
        if payload["step"] == at and seen.count(at) == 1:
            if twice == "at once":
                return perform(payload)
            raise CutOff("the reply is lost")
        return answer

    plane.executions.invoke = invoked
    _, run = waiting(plane)
    goes_on(plane, run)
    plane.drain()
    assert plane.execution(run).ended == "SUCCEEDED" and at in seen
    assert plane.held() == ["cloud-0", "cloud-1", "cloud-2"]


@pytest.mark.slow
def test_a_lost_callback_is_asked_for_again() -> None:
    plane, run = waiting()
    plane.executions.lost = lambda call: call == "succeed"
    goes_on(plane, run)
    plane.executions.lost = lambda call: False
    assert plane.execution(run).state == "barrier", "the start doesn't wait for its execution"
    plane.drain()
    assert plane.execution(run).ended == "SUCCEEDED"


def test_a_run_that_is_stopped_ends_its_execution_once_no_place_is_held() -> None:
    plane, run = waiting()
    stopping = {"status": RunStatus.terminating, "reason": RunReason.stopped_by_user, "due_at": plane.at}
    plane.save(plane.again(run).with_(**stopping))
    for _ in range(3):
        plane.take_pass(absent=LAST)
    plane.drain()
    execution = plane.execution(run)
    assert execution.ended == "FAILED" and execution.data["failure"]["Error"] == CANCELLED
    assert plane.held() == [] and plane.called[-1] == ("reserve", True)


def test_the_gangs_own_deadline_ends_the_attempt_and_its_execution() -> None:
    plane, run = waiting()
    plane.at = (gang(plane, run).until or 0) + SECOND
    for _ in range(5):
        plane.take_pass(absent=LAST)
    plane.drain()
    assert plane.execution(run).ended == "FAILED" and plane.held() == []
    assert jobs_of(plane, run)[-1].reason is JobReason.waiting_instance_limit_exceeded


@pytest.mark.slow
def test_an_execution_that_gives_up_ends_the_attempt_as_any_failure_does() -> None:
    """Nobody keeps the gang's deadline, and the state's time-outs pass."""
    plane, run = waiting()
    late = gang(plane, run).with_(until=plane.at + 9 * HOUR, due_at=plane.at + 9 * HOUR)
    plane.save(late)
    plane.drain()
    assert plane.execution(run).ended == "FAILED" and plane.held() == []
    assert plane.execution(run).data["failure"]["Error"] == TIMEOUT
    (lead, *_) = jobs_of(plane, run)
    assert lead.reason is JobReason.waiting_instance_limit_exceeded
    assert lead.message == "its nodes couldn't start together: wait until each node has an address"


@pytest.mark.slow
def test_an_outage_of_the_plane_ends_no_start() -> None:
    """For half an hour no call of the function succeeds, and a machine that was slow reports after that."""
    plane = Plane.with_fleet()
    perform, over = plane.executions.invoke, plane.at + 30 * MINUTE

    def invoked(payload: Mapping[str, Any]) -> Mapping[str, str]:
        if plane.at < over:
            raise CutOff("too many requests")
        return perform(payload)

    plane.executions.invoke = invoked
    _, run = waiting(plane)
    patient = {"deadline": over + HOUR, "due_at": over + HOUR}
    plane.save(gang(plane, run).with_(until=over + HOUR, due_at=over + HOUR))
    plane.save(*(each.with_(**patient) for each in plane.machines if each.name in LAST))
    while (due := plane.executions.next_due) is not None and due < over + 10 * MINUTE:
        plane.at = max(plane.at, due)
        plane.executions.run()
    assert plane.at > over and plane.execution(run).state == "barrier"
    goes_on(plane, run)
    plane.drain()
    assert plane.execution(run).ended == "SUCCEEDED"


def test_a_stage_may_take_longer_than_any_machine_or_job_does() -> None:
    """So its execution gives up only what nobody else has ended in time."""
    for facts in map(facts_of, built()):
        assert facts.create_timeout + facts.provisioning_timeout + TO_MEET < LONGEST_WAIT, facts.name
    assert TO_START + TO_ATTACH + PULL_TIMEOUT < LONGEST_WAIT


@pytest.mark.slow
def test_a_gang_that_begins_again_has_another_execution() -> None:
    plane, run = waiting()
    had, lead = gang(plane, run), jobs_of(plane, run)[0]
    for each in plane.machines:
        plane.save(plane.again(each).with_(claims=()))
    plane.save(
        had.with_(status=GangStatus.undone, places=(), until=None, due_at=None),
        lead.with_(reserved=False, due_at=plane.at),
    )
    plane.woken.append(QUEUE)
    for _ in range(4):
        plane.take_pass()
    plane.drain()
    assert gang(plane, run).attempt == 1
    assert plane.execution(run, 0).ended == "FAILED", "it undid nothing of the next attempt's"
    assert plane.execution(run, 1).ended == "SUCCEEDED" and len(plane.held()) == 3


def test_nobody_knows_a_run_any_more() -> None:
    plane = Plane.in_memory()
    name = "0f0f0f0f-0000-4000-8000-000000000000-0-0-0"
    with pytest.raises(Exception, match="no longer exists") as raised:
        plane.invoked({"workflow": name, "step": "barrier", "undo": False, "token": "t"})
    assert type(raised.value).__name__ == CANCELLED
    assert plane.invoked({"workflow": name, "step": "reserve", "undo": True}) == {}


# --- the fold ---------------------------------------------------------------------------------------------------------

RUN = b.run("train")
HOST = b.host(0, b.fleet("lab"))
PENDING = HOST.with_(status=InstanceStatus.pending)


def of(status: str, *places: str, **fields: Any) -> Gang:
    return Gang(
        id="g", run_id=RUN.id, run_name="train", project_id=PROJECT, nodes=2, status=GangStatus(status),
        places=places, began_at=0, last_processed_at=0, **fields,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "first", "at"),
    [
        (of("gathering"), None, "reserve"),
        (of("gathering", "gone"), None, "reserve"),
        (of("gathering", HOST.id), PENDING, "master"),
        (of("gathering", HOST.id), HOST, "rest"),
        (of("sealed", HOST.id, "h2"), HOST, "barrier"),
        (of("sealed", HOST.id, "h2", addresses=("a", "b")), HOST, "publish"),
        (of("starting", HOST.id, "h2", addresses=("a", "b")), HOST, "release"),
        (of("released", HOST.id, "h2", addresses=("a", "b")), HOST, None),
        (of("undone", HOST.id), HOST, None),
        (of("undone"), None, None),
    ],
)
def test_how_far_a_start_is_follows_from_the_gang(found: Gang, first: Instance | None, at: str | None) -> None:
    instances = {} if first is None else {first.id: first}
    now = stage(found, instances)
    if found.places or at is None:
        assert (now.name if now else None) == at
    snapshot = RunSnapshot(b.NOW, RUN, b.run_spec(), (), (), instances, {}, gangs=(found,))
    for name in STAGES if found.status is not GangStatus.undone else ():
        over = start_answer(snapshot, GangStart.of(found), StepCall(name)).created is not None
        assert over == (at is None or STAGES.index(name) < STAGES.index(at))


def test_stages_are_reached_in_the_order_in_which_they_are_declared() -> None:
    assert [reached(each, {HOST.id: HOST}) for each in (of("undone"), of("gathering", HOST.id))] == [0, 2]
    assert reached(of("released"), {}) == len(START_CLUSTER.steps)


def test_an_executions_name_is_short_enough_and_read_back() -> None:
    name = f"{RUN.id}-12-3-4"
    assert str(GangStart.named(name)) == name and GangStart.named(name) == GangStart(RUN.id, 12, 3, 4)
    assert len(f"{RUN.id}-1000-100000-100000") <= 80
