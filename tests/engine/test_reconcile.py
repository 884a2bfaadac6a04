"""One pass: order, isolation, rest."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.backends.simulated.cloud import FACTS
from chalicelib.domain import keys
from chalicelib.domain.closings import Closing
from chalicelib.domain.events import Event, EventType
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.engine.kinds import KINDS, Kinds
from chalicelib.engine.queue_pass import SMALLEST_PAGE
from chalicelib.engine.read import YOUNG, Reader
from chalicelib.engine.reconcile import TOGETHER
from chalicelib.errors import StorageFull
from chalicelib.machines.run import CHECK_RUN_EVERY
from chalicelib.planning.kernel.plan import Plan, Step
from chalicelib.planning.kernel.purchases import DescribeSeveral
from chalicelib.planning.machines.fleet import MAX_IN_FLIGHT
from chalicelib.planning.machines.snapshots import InstanceSnapshot
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.placing.snapshot import QueueSnapshot
from chalicelib.planning.projects.deletion import CALLS_LAST, CHECK_CLOSING_EVERY
from chalicelib.planning.runs.run import decide_run
from chalicelib.planning.runs.snapshot import RunSnapshot
from chalicelib.store import nouns
from chalicelib.store.port import Delete, Index, Page, Put, Record
from tests.world import nouns as b
from tests.world.engine import Engine
from tests.world.nouns import PROJECT
from tests.world.ports import Books, accounts

QUEUE = f"queue/{PROJECT}"


@pytest.fixture
def place() -> Engine:
    return Engine.in_memory()


def events(place: Engine) -> list[Event]:
    return [nouns.read(Event, r) for r in place.store.records() if r.key.pk == f"events/{PROJECT}"]


def record_of(place: Engine, key: keys.Key) -> Record:
    found = place.store.get(key)
    assert found is not None
    return found


# --- placement through the whole pass -------------------------------------------------------------------------------


def test_due_job_is_placed_without_any_hint(place: Engine) -> None:
    place.hosts(1)
    job = place.run("one")
    done = place.reconciler().run()
    assert not done.failed
    assert place.again(job).status is JobStatus.provisioning
    assert place.rung


def test_hinted_job_is_placed_though_no_index_shows_it(place: Engine) -> None:
    place = Engine.in_memory(lag=3600 * SECOND)
    place.hosts(1)
    job = place.run("one")
    place.reconciler().run([QUEUE, f"run/{job.run_id}"])
    assert place.again(job).status is JobStatus.provisioning


def fresh(place: Engine, name: str, **fields: Any) -> Job:
    """A job as it is just after its submission, in no index; its run is due for the first time in a minute."""
    job = place.run(name, **fields)
    of = _run(place, job.run_id)
    place.save(place.again(job).with_(due_at=None), of.with_(due_at=of.submitted_at + CHECK_RUN_EVERY))
    return place.again(job)


def waiting(place: Engine) -> list[str]:
    """The runs of the queue, in order."""
    return [record.key.pk for record in place.store.query("gsi1", keys.queue_of(PROJECT)).records]


def test_a_new_job_enters_the_queue_only_if_it_has_to_wait(place: Engine) -> None:
    place.hosts(1)
    first, second = fresh(place, "first", resources={"cpu": "8.."}), fresh(place, "second", resources={"cpu": "8.."})
    assert waiting(place) == []
    place.reconciler().run([QUEUE, f"run/{first.run_id}"])
    assert place.again(first).status is JobStatus.provisioning and waiting(place) == []
    place.reconciler().run([QUEUE, f"run/{second.run_id}"])
    assert "waiting" in place.again(second).message and waiting(place) == [f"run/{second.run_id}"]


def test_a_new_job_of_which_nobody_was_told_is_queued_by_its_runs_first_look(place: Engine) -> None:
    place.hosts(1)
    job = fresh(place, "one")
    place.reconciler().run()
    assert place.again(job).status is JobStatus.submitted and not place.rung
    place.clock.pass_(CHECK_RUN_EVERY / SECOND)
    place.reconciler().run()
    assert place.again(job).status is JobStatus.provisioning


def test_a_new_job_is_placed_before_those_of_less_priority_that_wait_on_several_pages(place: Engine) -> None:
    fleet = place.hosts(1, status=InstanceStatus.provisioning)
    older = [place.run(f"older-{n:02}", resources={"cpu": "8.."}) for n in range(3 * SMALLEST_PAGE)]
    urgent = fresh(place, "urgent", priority=9, resources={"cpu": "8.."})
    late = fresh(place, "late", resources={"cpu": "8.."})
    place.save(place.again(fleet[0]).with_(status=InstanceStatus.idle))
    place.reconciler().run([QUEUE, f"run/{late.run_id}", f"run/{urgent.run_id}"])
    assert place.again(urgent).status is JobStatus.provisioning
    assert {place.again(job).status for job in (*older, late)} == {JobStatus.submitted}
    assert f"run/{late.run_id}" in waiting(place)


def test_a_queue_that_lost_its_races_is_woken_with_the_new_jobs_it_was_told_of(place: Engine) -> None:
    place.hosts(1)
    job = fresh(place, "one")
    others = iter(range(100))

    def overtaken(snapshot: QueueSnapshot) -> Plan:
        plan = decide_queue(snapshot)
        place.save(place.again(job).with_(message=f"touched {next(others)}"))
        return plan

    place.reconciler(kinds=KINDS.deciding("queue", decide=overtaken)).run([QUEUE, f"run/{job.run_id}"])
    assert {QUEUE, f"run/{job.run_id}"} <= place.take_woken()


@pytest.mark.slow
def test_hinted_host_is_taken_as_it_is_now_though_the_index_shows_it_busy() -> None:
    """It is none of its fleet's newest, which are read by key in any case."""
    place = Engine.in_memory()
    host, *others = place.hosts(YOUNG + 1, status=InstanceStatus.busy)
    for each in (host, *others):
        place.save(b.holding(place.again(each), b.job(b.run(each.name))))
    place.at += MINUTE
    place.store.max_lag = 3600 * SECOND
    job = place.run("one")
    place.save(place.again(host).with_(claims=(), status=InstanceStatus.idle, idle_since=place.at))
    place.reconciler().run([QUEUE, f"run/{job.run_id}", f"instance/{host.id}"])
    assert place.again(job).status is JobStatus.provisioning
    assert [claim.job_id for claim in place.again(host).claims] == [job.id]


@pytest.mark.slow
def test_head_that_cannot_be_placed_does_not_block_the_rest(place: Engine) -> None:
    hosts = place.hosts(2)
    assert len(hosts) == 2
    heads = [place.run(f"big-{n}", due=False, priority=9, fleets=["elsewhere"]) for n in range(60)]
    small = place.run("small", due=False)
    place.reconciler().run([QUEUE])
    assert place.again(small).status is JobStatus.provisioning
    assert {place.again(job).status for job in heads} != {JobStatus.provisioning}


@pytest.mark.slow
def test_full_house_is_cheap_to_look_at(place: Engine) -> None:
    place.hosts(3)
    for number in range(203):
        place.run(f"run-{number}", due=False)
    engine = place.reconciler()
    engine.run([QUEUE])
    waiting = [r for r in place.store.records() if r.gsi1 is not None and r.gsi1[0] == QUEUE]
    assert len(waiting) == 200
    place.store.read = 0
    engine.run([QUEUE])
    assert place.store.read < 20


@pytest.mark.slow
def test_few_free_places_read_few_jobs(place: Engine) -> None:
    place.hosts(3)
    for number in range(500):
        place.run(f"run-{number}", due=False)
    place.reconciler().run([QUEUE])
    assert place.store.read < 200


def test_jobs_that_are_due_are_read_in_whole_pages_however_few_places_are_free(place: Engine) -> None:
    """All of them are to be looked at, and each page is a call."""
    place.hosts(1)
    for number in range(2 * SMALLEST_PAGE):
        place.run(f"run-{number}")
    query, pages = place.store.query, list[int]()

    def seen(index: Index, partition: str, **more: Any) -> Page:
        found: Page = query(index, partition, **more)
        if partition == keys.queue_of(PROJECT):
            pages.append(len(found.records))
        return found

    place.store.query = seen
    place.reconciler().run()
    assert pages == [1, 2 * SMALLEST_PAGE], "whether anybody waits, and then everybody"


@pytest.mark.slow
def test_next_page_goes_on_where_the_first_found_no_place(place: Engine) -> None:
    place.hosts(1)
    for number in range(40):
        place.run(f"big-{number:02d}", due=False, priority=5, resources={"cpu": "64.."})
    small = place.run("small", due=False)
    place.reconciler().run([QUEUE])
    assert place.again(small).status is JobStatus.provisioning


def test_submitted_job_hears_why_it_waits_in_a_full_house(place: Engine) -> None:
    place.hosts(1)
    place.run("first")
    engine = place.reconciler()
    engine.run()
    late = place.run("late", due=False)
    engine.run([QUEUE, f"run/{late.run_id}"])
    assert "waiting" in place.again(late).message


def test_two_engines_place_one_job_once(place: Engine) -> None:
    (host,) = place.hosts(1)
    job = place.run("one")
    other = place.reconciler()

    def overtaken(snapshot: QueueSnapshot) -> Plan:
        plan = decide_queue(snapshot)
        if plan.steps and place.again(job).status is JobStatus.submitted:
            other.run([QUEUE])
        return plan

    done = place.reconciler(kinds=KINDS.deciding("queue", decide=overtaken)).run([QUEUE, f"run/{job.run_id}"])
    assert not done.failed
    assert place.again(job).status is JobStatus.provisioning
    assert [claim.job_id for claim in place.again(host).claims] == [job.id]


@pytest.mark.slow
def test_job_that_another_pass_placed_between_two_pages_is_left_alone(place: Engine) -> None:
    (host,) = place.hosts(1)
    halves = host.offer.with_(blocks=2, total_blocks=2)
    place.store.commit([nouns.put(host.with_(offer=halves, total_blocks=2))])
    for number in range(20):
        place.run(f"hopeless-{number}", due=False, priority=9, fleets=["elsewhere"])
    job = place.run("asked", due=False)
    hints = [QUEUE, f"run/{job.run_id}"]
    others = iter([place.reconciler()])

    def overtaken(snapshot: QueueSnapshot) -> Plan:
        for other in others:
            other.run(hints)
        return decide_queue(snapshot)

    done = place.reconciler(kinds=KINDS.deciding("queue", decide=overtaken)).run(hints)
    assert not done.failed
    assert place.again(job).status is JobStatus.provisioning


def test_conflict_is_decided_again_from_a_fresh_look(place: Engine) -> None:
    job = place.run("one")
    times = 0

    def disturbed(snapshot: RunSnapshot) -> Plan:
        nonlocal times
        times += 1
        if times < 3:
            place.store.commit([nouns.put(snapshot.run.with_(message=f"disturbed {times}"))])
            return Plan((Step((snapshot.run.with_(message="stale"),)),))
        return Plan((Step((snapshot.run.with_(message="settled"),)),))

    done = place.reconciler(kinds=KINDS.deciding("run", decide=disturbed)).run([f"run/{job.run_id}"])
    run = nouns.find(place.store, Run, keys.run(job.run_id))
    assert run is not None
    assert run.message == "settled"
    assert not done.conflicts


def test_endless_conflict_is_left_to_the_next_pass(place: Engine) -> None:
    job = place.run("one")

    def always_late(snapshot: RunSnapshot) -> Plan:
        place.store.commit([nouns.put(snapshot.run)])
        return Plan((Step((snapshot.run.with_(message="stale"),)),))

    done = place.reconciler(kinds=KINDS.deciding("run", decide=always_late)).run([f"run/{job.run_id}"])
    assert done.conflicts
    assert f"run/{job.run_id}" in place.woken


# --- units that are looked at together --------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_many_units_need_is_committed_at_once(place: Engine) -> None:
    jobs = [place.run(f"run-{number}") for number in range(3 * TOGETHER)]
    place.hosts(len(jobs))
    engine = place.reconciler()
    before = place.store.commits
    done = engine.run([QUEUE, *(f"run/{job.run_id}" for job in jobs)])
    assert {_run(place, job.run_id).status for job in jobs} == {RunStatus.provisioning}
    assert done.steps >= len(jobs)
    assert place.store.commits - before < done.steps / 10


def test_so_is_what_units_that_are_due_need(place: Engine) -> None:
    """Every host has a job that its agent has finished."""
    hosts = place.hosts(TOGETHER, status=InstanceStatus.busy)
    for host in hosts:
        place.save(place.again(host).with_(due_at=place.at))
    before = place.store.commits
    done = place.reconciler().run()
    assert {place.again(host).status for host in hosts} == {InstanceStatus.idle}
    assert (done.steps, place.store.commits - before) == (TOGETHER, 1)


def test_unit_that_was_decided_without_anothers_change_is_decided_again(place: Engine) -> None:
    hosts = place.hosts(5)
    fleet = nouns.find(place.store, Fleet, keys.fleet(hosts[0].fleet_id))
    assert fleet is not None

    def counts(snapshot: InstanceSnapshot) -> Plan:
        fleet = snapshot.fleet.fleet
        return Plan((Step((fleet.with_(next_instance_num=fleet.next_instance_num + 1),)),))

    kinds = KINDS.deciding("instance", decide=counts)
    done = place.reconciler(kinds=kinds).run([f"instance/{host.id}" for host in hosts])
    assert not done.failed
    assert place.again(fleet).next_instance_num == fleet.next_instance_num + len(hosts)


def test_unit_that_another_process_overtook_is_decided_again(place: Engine) -> None:
    jobs = [place.run(f"run-{number}") for number in range(4)]

    def overtaken(snapshot: RunSnapshot) -> Plan:
        if snapshot.run.id == jobs[2].run_id and not snapshot.run.message:
            place.store.commit([nouns.put(snapshot.run.with_(message="quicker"))])
        return Plan((Step((snapshot.run.with_(message=snapshot.run.message + "decided"),)),))

    kinds = KINDS.deciding("run", decide=overtaken)
    done = place.reconciler(kinds=kinds).run([f"run/{job.run_id}" for job in jobs], kinds=())
    assert not done.failed
    assert [_run(place, job.run_id).message for job in jobs] == ["decided", "decided", "quickerdecided", "decided"]


# --- a unit that fails ----------------------------------------------------------------------------------------------


def broken_for(run_id: str, when: Callable[[], bool] = lambda: True) -> Kinds:
    def decide(snapshot: RunSnapshot) -> Plan:
        if snapshot.run.id == run_id and when():
            raise ZeroDivisionError("a bug")
        return decide_run(snapshot)

    return KINDS.deciding("run", decide=decide)


def test_failing_unit_stops_nobody_else(place: Engine, caplog: pytest.LogCaptureFixture) -> None:
    place.hosts(2)
    bad, good = place.run("bad"), place.run("good")
    with caplog.at_level(logging.ERROR):
        done = place.reconciler(kinds=broken_for(bad.run_id)).run()
    assert list(done.failed) == [f"run/{bad.run_id}"]
    run = nouns.find(place.store, Run, keys.run(good.run_id))
    assert run is not None
    assert run.status is RunStatus.provisioning
    assert f"run/{bad.run_id}" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_a_full_disk_is_no_units_fault(place: Engine, caplog: pytest.LogCaptureFixture) -> None:
    place.hosts(2)
    jobs = [place.run("a"), place.run("b")]

    def full(changes: object) -> None:
        raise StorageFull("the disk is full.")

    with caplog.at_level(logging.ERROR), pytest.raises(StorageFull):
        place.store.before, before = full, place.store.before  # type: ignore[assignment]
        place.reconciler().run()
    assert not caplog.records, "whoever tries again says so, once"
    place.store.before = before
    place.reconciler().run()
    assert {_run(place, job.run_id).status for job in jobs} == {RunStatus.provisioning}


def test_failing_unit_is_put_off_ever_longer_and_told(place: Engine) -> None:
    bad = place.run("bad")
    place.store.commit([nouns.put(_run(place, bad.run_id).with_(due_at=place.at))])
    engine = place.reconciler(kinds=broken_for(bad.run_id))
    pauses = []
    for _ in range(4):
        engine.run()
        due = record_of(place, keys.run(bad.run_id)).due
        assert due is not None
        pauses.append((due.at - place.at) // SECOND)
        place.at = due.at
    assert pauses == [10, 20, 40, 80]
    stuck = [event for event in events(place) if event.type is EventType.stuck]
    assert len(stuck) == 3  # the 1st, 2nd and 4th time
    assert all((event.reason, event.detail) == ("ZeroDivisionError", "a bug") for event in stuck)
    assert stuck[0].message == "processing failed and will be retried (ZeroDivisionError: a bug)"
    assert stuck[0].run_id == bad.run_id


def test_a_unit_that_recovered_fails_for_the_first_time_again(place: Engine) -> None:
    bad = place.run("bad")
    broken = [True, True, False, True]
    engine = place.reconciler(kinds=broken_for(bad.run_id, when=lambda: broken[0]))
    pauses = []
    while broken:
        place.store.commit([nouns.put(_run(place, bad.run_id).with_(due_at=place.at))])
        engine.run()
        due = record_of(place, keys.run(bad.run_id)).due
        if broken.pop(0):
            assert due is not None
            pauses.append((due.at - place.at) // SECOND)
        place.at += 3600 * SECOND
    assert pauses == [10, 20, 10]


def test_unreadable_noun_is_put_off_too(place: Engine) -> None:
    job = place.run("bad")
    record = record_of(place, keys.run(job.run_id))
    broken = replace(record, version=record.version + 1, body=b'{"project_id": "p", "name": "bad"}')
    due = nouns.put(_run(place, job.run_id).with_(due_at=place.at)).record.due
    place.store.commit([Put(replace(broken, due=due), expect=record.version)])
    done = place.reconciler().run()
    assert f"run/{job.run_id}" in done.failed
    moved = record_of(place, keys.run(job.run_id)).due
    assert moved is not None
    assert moved.at > place.at


def test_broken_job_does_not_block_the_queue(place: Engine) -> None:
    place.hosts(1)
    orphan = place.run("orphan", priority=9)
    place.store.commit([Delete(keys.run(orphan.run_id))])
    job = place.run("fine")
    place.reconciler().run([QUEUE])
    assert place.again(job).status is JobStatus.provisioning


def test_plan_that_breaks_a_rule_is_not_committed(place: Engine) -> None:
    job = place.run("one")
    before = place.store.commits

    def wrong(snapshot: RunSnapshot) -> Plan:
        return Plan((Step((snapshot.run.with_(status=RunStatus.done),)),))

    done = place.reconciler(kinds=KINDS.deciding("run", decide=wrong)).run([f"run/{job.run_id}"])
    assert "breaks a rule" in done.failed[f"run/{job.run_id}"]
    assert _run(place, job.run_id).status is RunStatus.submitted
    assert place.store.commits >= before


def _run(place: Engine, run_id: str) -> Run:
    found = nouns.find(place.store, Run, keys.run(run_id))
    assert found is not None
    return found


# --- rest -----------------------------------------------------------------------------------------------------------


def test_unit_with_nothing_to_do_is_put_off(place: Engine) -> None:
    job = place.run("one")
    place.store.commit([nouns.put(_run(place, job.run_id).with_(due_at=place.at))])
    idle = KINDS.deciding("run", decide=lambda snapshot: Plan(next_wake=place.at + 7 * MINUTE))
    place.reconciler(kinds=idle).run([])
    due = record_of(place, keys.run(job.run_id)).due
    assert due is not None
    assert due.at == place.at + 7 * MINUTE


def test_everything_due_is_due_no_more_after_a_pass(place: Engine) -> None:
    place.hosts(1)
    for number in range(5):
        place.run(f"run-{number}")
    engine = place.reconciler()
    for _ in range(3):
        engine.run()
    soonest = place.store.next_due()
    assert soonest is not None
    assert soonest > place.at


def test_settled_plane_writes_nothing(place: Engine) -> None:
    hosts = place.hosts(2)
    job = place.run("one")
    engine = place.reconciler()
    units = [QUEUE, f"run/{job.run_id}", f"fleet/{hosts[0].fleet_id}", *(f"instance/{host.id}" for host in hosts)]
    for _ in range(3):
        engine.run(units)
    before = place.store.commits
    engine.run(units)
    assert place.store.commits == before


def test_unknown_unit_is_told_and_passed_by(place: Engine, caplog: pytest.LogCaptureFixture) -> None:
    done = place.reconciler().run(["gadget/1", "run/nobody"])
    assert not done.failed
    assert "gadget/1" in caplog.text


def test_specs_are_parsed_once(place: Engine) -> None:
    place.hosts(1)
    job = place.run("one")
    engine = place.reconciler()
    engine.run()
    place.store.keys.clear()
    engine.run([f"run/{job.run_id}", QUEUE])
    assert not [key for key in place.store.keys if key.sk.startswith("body/")]


# --- deleted projects ------------------------------------------------------------------------------------------------


def test_what_a_half_done_deletion_left_running_ends(place: Engine) -> None:
    place.fleet("pool")
    job = place.run("one")
    now = place.clock.now()
    name = nouns.pointer(keys.run_name(PROJECT, "one"), job.run_id)
    place.store.commit([name, nouns.put(Closing(id=PROJECT, began_at=now - CALLS_LAST, due_at=now))])
    place.reconciler().run(kinds=["closing"])
    run = nouns.find(place.store, Run, keys.run(job.run_id))
    assert run is not None
    assert (run.status, run.message) == (RunStatus.terminated, "its project was deleted")
    place.clock.pass_(CHECK_CLOSING_EVERY / SECOND)
    place.reconciler().run(kinds=["closing"])
    closing = nouns.find(place.store, Closing, keys.closing(PROJECT))
    assert closing is not None and closing.due_at is None
    assert [fleet.status for fleet in Reader(place.store).fleets(PROJECT)] == []


# --- nobody waits for somebody else's large orders -------------------------------------------------------------------


def test_a_pass_over_a_fleet_of_twenty_thousand_is_soon_over() -> None:
    """What one pass buys is bounded, so the next project's turn comes soon."""
    place = Engine.in_memory(catalog=Books([b.offer()]), backends=accounts(b.FACTS["aws"]))
    large = place.fleet("large", nodes="20000")
    done = place.reconciler().run([f"fleet/{large.id}"])
    assert not done.failed
    assert (done.steps, len(place.effects)) == (MAX_IN_FLIGHT, MAX_IN_FLIGHT)


def test_a_machine_of_a_large_fleet_is_looked_at_without_reading_the_others() -> None:
    place = Engine.in_memory(catalog=Books([b.offer()]), backends=accounts(b.FACTS["aws"]))
    large = place.fleet("large", nodes="100")
    place.reconciler().run([f"fleet/{large.id}"])
    unit = place.effects[0].unit
    place.store.read = 0
    place.reconciler().run([unit], kinds=[])
    assert place.store.read <= 6


def test_where_nobody_waits_no_fleet_is_read() -> None:
    place = Engine.in_memory()
    place.hosts(50)
    place.store.read = 0
    place.reconciler().run([QUEUE], kinds=[])
    assert place.store.read == 0


def test_machines_that_are_waited_for_are_looked_at_together() -> None:
    """As many as a pass commits at once, and not one by one."""
    place = Engine.in_memory(backends=accounts(FACTS))
    fleet = place.fleet("cloud", nodes="0..60")
    offer = b.offer(backend=FACTS.name)
    for number in range(60):
        waits = {"started_at": None, "due_at": place.at, "deadline": place.at + HOUR, "offer": offer, "version": 0}
        place.save(b.machine(number, fleet, status=InstanceStatus.provisioning, created_at=place.at, **waits))
    place.reconciler().run()
    describes = [effect for effect in place.effects if isinstance(effect, DescribeSeveral)]
    assert len(describes) == len(place.effects) == 60 // TOGETHER
    assert len({unit for each in describes for unit in each.units}) == 60
