"""Tasks on several nodes through whole passes: all places or none, whatever happens between two commits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from chalicelib.domain.gangs import GangStatus
from chalicelib.domain.instances import InstanceStatus, OnPrem
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.reasons import JobReason, RunReason
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.engine.queue_pass import SMALLEST_PAGE
from chalicelib.machines.gang import TO_MEET, TO_SEAL
from chalicelib.planning.placing.gang_placement import CHUNK, HOLD_AFTER
from chalicelib.store.port import Change
from tests.world.engine import Engine
from tests.world.gangs import cluster, gang_of, holders, jobs_of, task
from tests.world.nouns import PROJECT

QUEUE = f"queue/{PROJECT}"
SIZES = [2, 30, 31, 100, pytest.param(200, marks=pytest.mark.slow)]
SEVERAL = pytest.param(2 * CHUNK + 1, marks=pytest.mark.slow)  # one chunk has others on both sides


@pytest.fixture
def place() -> Engine:
    return Engine.in_memory()


def reconcile(place: Engine, *runs: Run) -> None:
    done = place.reconciler().run([QUEUE, *(f"run/{run.id}" for run in runs)])
    assert not done.failed, done.failed


@pytest.mark.parametrize("nodes", SIZES)
def test_all_nodes_get_a_whole_host_each_and_learn_all_addresses(place: Engine, nodes: int) -> None:
    hosts = cluster(place, nodes)
    run = task(place, "train", nodes)
    reconcile(place, run)
    jobs, gang = jobs_of(place, run), gang_of(place, run)
    assert gang is not None and gang.status is GangStatus.released
    assert [job.status for job in jobs] == [JobStatus.provisioning] * nodes
    where = [job.assignment.instance_id for job in jobs if job.assignment]
    assert sorted(where) == sorted(host.id for host in hosts)
    assert list(gang.places) == where
    assert gang.addresses == tuple(place.again(host).internal_ip for host in hosts)
    assert {place.again(host).status for host in hosts} == {InstanceStatus.busy}


@pytest.mark.parametrize("nodes", SIZES)
def test_one_host_too_few_and_nothing_is_taken(place: Engine, nodes: int) -> None:
    hosts = cluster(place, nodes)
    single = task(place, "single", 1)
    reconcile(place, single)
    run = task(place, "train", nodes)
    reconcile(place, run)
    assert holders(place, hosts).get(run.id) is None
    assert gang_of(place, run) is None
    assert {job.status for job in jobs_of(place, run)} == {JobStatus.submitted}
    assert (
        f"for {nodes} whole hosts in cluster `cluster` at once ({nodes - 1} free now)" in jobs_of(place, run)[0].message
    )


class Cut(BaseException):
    """The process is gone."""


class Cutter:
    """The engine's store, in a process that dies before its commit number `at`."""

    def __init__(self, place: Engine, at: int) -> None:
        self._commit, self.left = place.store.commit, at
        place.store.commit = self
        self._place = place

    def __call__(self, changes: Sequence[Change]) -> None:
        if self.left == 0:
            raise Cut
        self.left -= 1
        self._commit(changes)

    def restored(self) -> None:
        self._place.store.commit = self._commit


def cuts(nodes: int) -> Iterator[int]:
    """Numbers of commits to die before, as many as a start has."""
    yield from range(4 * -(-nodes // CHUNK) + 6)


@pytest.mark.parametrize("nodes", [2, pytest.param(31, marks=pytest.mark.slow), SEVERAL])
def test_a_process_that_dies_between_any_two_commits_leaves_a_gang_that_starts_or_holds_nothing(nodes: int) -> None:
    died = 0
    for at in cuts(nodes):
        place = Engine.in_memory()
        hosts = cluster(place, nodes)
        run = task(place, "train", nodes)
        cutter = Cutter(place, at)
        try:
            reconcile(place, run)
        except Cut:
            died += 1
        cutter.restored()
        place.at += TO_SEAL + SECOND
        assert not place.reconciler().run().failed
        gang = gang_of(place, run)
        sealed = gang is not None and len(gang.places) == nodes
        assert len(holders(place, hosts).get(run.id, [])) == (nodes if sealed else 0), at
        place.at += MINUTE
        for _ in range(2):
            assert not place.reconciler().run().failed
        assert {job.status for job in jobs_of(place, run)} == {JobStatus.provisioning}, at
        assert holders(place, hosts) == {run.id: [host.name for host in hosts]}, at
    assert died >= 3


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [31, 2 * CHUNK + 1])
def test_a_stop_while_places_are_gathered_gives_them_all_back(nodes: int) -> None:
    for at in cuts(nodes):
        place = Engine.in_memory()
        hosts = cluster(place, nodes)
        run = task(place, "train", nodes)
        cutter = Cutter(place, at)
        with contextlib.suppress(Cut):
            reconcile(place, run)
        cutter.restored()
        current = place.again(run)
        if current.status is RunStatus.submitted:
            place.save(current.with_(status=RunStatus.terminating, reason=RunReason.aborted_by_user, due_at=place.at))
            for _ in range(3):
                assert not place.reconciler().run([f"run/{run.id}"]).failed
            gang = gang_of(place, run)
            if gang is None or gang.status is not GangStatus.released:
                held = holders(place, hosts).get(run.id, [])
                placed = [job for job in jobs_of(place, run) if job.assignment]
                assert len(held) == len(placed), at
                if not placed:
                    assert place.again(run).status is RunStatus.terminated, at


# --- what follows from its nodes -------------------------------------------------------------------------------------


def put(place: Engine, run: Run, changes: dict[int, dict[str, Any]]) -> None:
    """As agents would: these nodes' jobs change."""
    for job in jobs_of(place, run):
        if job.job_num in changes:
            place.save(job.with_(**changes[job.job_num]))


def running(at: int) -> dict[str, Any]:
    return {"status": JobStatus.running, "running_at": at}


def ended(reason: JobReason, at: int) -> dict[str, Any]:
    status = JobStatus.done if reason is JobReason.done_by_runner else JobStatus.failed
    return {"status": status, "reason": reason, "finished_at": at, "due_at": None}


def statuses(place: Engine, run: Run) -> list[str]:
    return [job.status.value for job in jobs_of(place, run)]


def free(place: Engine, run: Run, hosts: list[Any], node: int) -> None:
    """The node's machine without its claim, as its agent's last report leaves it."""
    job = jobs_of(place, run)[node]
    for host in hosts:
        current = place.again(host)
        left = tuple(claim for claim in current.claims if claim.job_id != job.id)
        if len(left) < len(current.claims):
            place.save(current.with_(claims=left, status=InstanceStatus.idle, idle_since=place.at))


@pytest.mark.parametrize(
    ("order", "first"),
    [
        ("any", ["provisioning"] * 3),
        ("master-first", ["provisioning", "submitted", "submitted"]),
        ("workers-first", ["submitted", "provisioning", "provisioning"]),
    ],
)
def test_nodes_start_in_order_and_the_later_hold_their_hosts_meanwhile(
    place: Engine, order: str, first: list[str]
) -> None:
    hosts = cluster(place, 3)
    run = task(place, "train", 3, startup_order=order)
    reconcile(place, run)
    assert statuses(place, run) == first
    assert len(holders(place, hosts)[run.id]) == 3
    put(place, run, {n: running(place.at) for n, status in enumerate(first) if status == "provisioning"})
    reconcile(place, run)
    assert "submitted" not in statuses(place, run)
    gang = gang_of(place, run)
    assert gang is not None and gang.status is GangStatus.released


def test_a_node_that_fails_before_the_others_may_start_frees_all(place: Engine) -> None:
    hosts = cluster(place, 3)
    run = task(place, "train", 3, startup_order="master-first")
    reconcile(place, run)
    free(place, run, hosts, 0)
    put(place, run, {0: ended(JobReason.container_exited_with_error, place.at)})
    for _ in range(3):
        reconcile(place, run)
    assert holders(place, hosts) == {}
    assert place.again(run).status is RunStatus.failed
    assert statuses(place, run) == ["failed", "terminated", "terminated"]


def test_with_master_done_the_first_node_decides(place: Engine) -> None:
    hosts = cluster(place, 3)
    run = task(place, "train", 3, stop_criteria="master-done")
    reconcile(place, run)
    put(place, run, {1: running(place.at), 2: running(place.at)})
    free(place, run, hosts, 0)
    put(place, run, {0: ended(JobReason.done_by_runner, place.at)})
    reconcile(place, run)
    current = place.again(run)
    assert (current.status, current.reason) == (RunStatus.terminating, RunReason.all_jobs_done)
    assert {job.reason for job in jobs_of(place, run)} == {JobReason.done_by_runner}


def test_a_run_stays_running_when_one_node_is_done_before_another_begins(place: Engine) -> None:
    hosts = cluster(place, 2)
    run = task(place, "train", 2)
    reconcile(place, run)
    put(place, run, {0: running(place.at)})
    reconcile(place, run)
    free(place, run, hosts, 0)
    put(place, run, {0: ended(JobReason.done_by_runner, place.at)})
    reconcile(place, run)
    assert statuses(place, run) == ["done", "provisioning"]
    assert place.again(run).status is RunStatus.running


@pytest.mark.parametrize("nodes", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_a_failure_that_retry_covers_starts_all_nodes_again(place: Engine, nodes: int) -> None:
    hosts = cluster(place, nodes)
    run = task(place, "train", nodes, retry={"on_events": ["error"]})
    reconcile(place, run)
    put(place, run, {n: running(place.at) for n in range(nodes)})
    free(place, run, hosts, 1)
    put(place, run, {1: ended(JobReason.container_exited_with_error, place.at)})
    reconcile(place, run)
    assert set(statuses(place, run)) == {"failed", "terminating"}
    for node in range(nodes):
        if node != 1:
            free(place, run, hosts, node)
            put(place, run, {node: {"status": JobStatus.terminated, "finished_at": place.at, "due_at": None}})
    reconcile(place, run)
    assert place.again(run).status is RunStatus.pending
    place.at += MINUTE
    reconcile(place, run)
    assert {job.submission_num for job in jobs_of(place, run)} == {1}
    assert set(statuses(place, run)) == {"provisioning"}
    assert len(jobs_of(place, run)) == nodes
    gang = gang_of(place, run, 1)
    assert gang is not None and gang.status is GangStatus.released


def test_a_host_that_ends_before_the_barrier_ends_the_attempt_and_frees_the_others(place: Engine) -> None:
    hosts = cluster(place, 3)
    for host in hosts:
        place.save(place.again(host).with_(internal_ip="", host=OnPrem(hostname=host.name, port=22)))
    run = task(place, "train", 3)
    reconcile(place, run)
    gang = gang_of(place, run)
    assert gang is not None and gang.status is GangStatus.sealed
    assert set(statuses(place, run)) == {"submitted"}
    place.at += TO_MEET
    for _ in range(3):
        reconcile(place, run)
    assert holders(place, hosts) == {}
    current = place.again(run)
    assert current.status is RunStatus.failed
    assert "has no address that the other nodes could reach" in current.message


def test_of_two_that_compete_the_one_of_higher_priority_goes_first_and_the_other_follows(place: Engine) -> None:
    hosts = cluster(place, 8)
    low, high = task(place, "low", 5), task(place, "high", 5, priority=10)
    reconcile(place, low, high)
    assert {run: len(where) for run, where in holders(place, hosts).items()} == {high.id: 5}
    for node in range(5):
        free(place, high, hosts, node)
        put(place, high, {node: ended(JobReason.done_by_runner, place.at)})
    reconcile(place, low, high)
    assert {run: len(where) for run, where in holders(place, hosts).items()} == {low.id: 5}


def test_hosts_are_held_back_for_two_nodes_from_jobs_of_a_later_page(place: Engine) -> None:
    hosts = cluster(place, 2)
    reconcile(place, task(place, "busy", 1))
    place.at += SECOND
    pair = task(place, "pair", 2, priority=9)
    place.at += HOLD_AFTER
    for number in range(SMALLEST_PAGE):
        task(place, f"huge-{number:02d}", 1, priority=5, resources={"cpu": "64..", "memory": "1GB.."})
    late = task(place, "late", 1)
    assert not place.reconciler().run([QUEUE]).failed
    assert statuses(place, late) == ["submitted"] and "held back for run `pair`" in jobs_of(place, late)[0].message
    assert len(holders(place, hosts)) == 1 and holders(place, hosts).get(pair.id) is None


def test_a_finished_run_is_kept_unless_it_is_large(place: Engine) -> None:
    cluster(place, 30)
    cached = {}
    for nodes in (2, 30):
        run = task(place, f"train-{nodes}", nodes)
        place.save(run.with_(status=RunStatus.done))
        done, read = place.again(run), place.plane.read
        cached[nodes] = read.run_row(done) is read.run_row(done)
        assert len(read.run_row(done).job_specs) == nodes
    assert cached == {2: True, 30: False}


@pytest.mark.slow
def test_a_start_costs_in_proportion_to_its_nodes() -> None:
    commits: dict[int, int] = {}
    for nodes in (10, 50, 100, 200):
        place = Engine.in_memory()
        cluster(place, nodes)
        run = task(place, "train", nodes)
        cutter = Cutter(place, 10_000)
        reconcile(place, run)
        cutter.restored()
        assert set(statuses(place, run)) == {"provisioning"}
        commits[nodes] = 10_000 - cutter.left
    assert all(count <= 4 + 4 * -(-nodes // CHUNK) for nodes, count in commits.items()), commits
