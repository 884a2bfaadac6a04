"""What a look reads: by which limits, and which of it is left out."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.exports import Export
from chalicelib.domain.gateways import ReplicaState
from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import JobReason
from chalicelib.domain.runs import RunBody
from chalicelib.domain.services import SERVER, Scale, Traffic, door_of
from chalicelib.engine.load import MOST_SAMPLES, Loader, room
from chalicelib.engine.read import YOUNG, Reader
from chalicelib.planning.placing.claims import assignment_to
from chalicelib.planning.runs.snapshot import Sample
from chalicelib.store import nouns
from chalicelib.store.port import Delete
from chalicelib.usecases.agent_message import MetricPoint
from chalicelib.usecases.runs.metrics import metric_puts
from tests.world import gateway_seats
from tests.world import nouns as b
from tests.world.engine import Engine

SPLIT = b.machine(0, total_blocks=4)


@pytest.mark.parametrize(
    ("nodes", "there", "places"),
    [
        (None, [b.host(0), b.host(1)], 2),
        (None, [b.holding(b.host(0), b.job(b.run()))], 0),
        (None, [b.holding(SPLIT, b.job(b.run()), 0)], 3),
        (None, [b.host(0, unreachable_since=b.NOW)], 0),
        (None, [b.host(0, status=InstanceStatus.terminating)], 0),
        ("0..5", [b.machine(0)], 5),
        ("0..1", [b.machine(0), b.machine(1)], 2),
        ("0..", [b.machine(0)], None),
    ],
)
def test_room_is_free_blocks_and_machines_to_be_bought(nodes: Any, there: list[Any], places: int | None) -> None:
    assert room([b.view(b.fleet(), *there, nodes=nodes)]) == places


def test_room_is_summed_over_fleets() -> None:
    assert room([b.view(None, b.host(0)), b.view(None, b.machine(0), nodes="0..3")]) == 4
    assert room([]) == 0


@pytest.fixture
def place() -> Engine:
    return Engine.in_memory()


def loader(place: Engine) -> Loader:
    plane = place.plane
    return Loader(Reader(plane.store), plane.catalog, plane.backends)


def test_an_instance_is_read_with_the_jobs_that_hold_it_and_its_agents_word(place: Engine) -> None:
    (host,) = place.hosts(1)
    job = place.run("one")
    place.reconciler().run()
    found = loader(place).instance(host.id, place.at)
    assert found is not None
    assert [each.id for each in found.jobs] == [job.id]
    assert found.presence is not None and found.presence.instance_id == host.id
    assert [each.id for each in found.fleet.instances] == [host.id], "a host is judged by itself"


def test_a_run_is_read_with_the_machines_of_its_live_jobs(place: Engine) -> None:
    (host,) = place.hosts(1)
    job = place.again(place.run("one"))
    place.reconciler().run()
    found = loader(place).run(job.run_id, place.at)
    assert found is not None
    assert list(found.instances) == list(found.presences) == [host.id]
    assert [each.status for each in found.jobs] == [JobStatus.provisioning]
    assert loader(place).run("no such run", place.at) is None


def test_a_run_on_its_own_machines_and_anothers_is_read_with_what_it_may_use(place: Engine) -> None:
    (own,) = place.hosts(1)
    lent = b.fleet("lent").with_(project_id="other")
    lent_host = b.host(0, lent).with_(project_id="other")
    shared = Export(id="e", project_id="other", project_name="other", name="hosts", created_at=1)
    shared = shared.with_(fleets=(lent.id,), importers=(b.PROJECT,))
    place.save(lent, lent_host, shared)
    place.store.commit([nouns.pointer(key, "other/hosts") for key in shared.pointers])
    first = place.run("one")
    for num, host in enumerate((own, lent_host)):
        on = {"status": JobStatus.running, "assignment": assignment_to(host, host.offer, place.at)}
        job = b.job(b.run("one"), replica=num, **on)
        place.save(job.with_(version=place.again(first).version if job.id == first.id else 0))
    found = loader(place).run(first.run_id, place.at)
    assert found is not None
    assert found.instances.keys() == {own.id, lent_host.id} and found.imported == {lent.id}


@pytest.mark.parametrize(
    ("named", "status", "bound"),
    [(False, JobStatus.running, False), (True, JobStatus.running, True), (True, JobStatus.terminating, False)],
)
def test_only_a_replica_that_reaches_others_is_bound_to_the_fleet_where_they_are(
    place: Engine, named: bool, status: JobStatus, bound: bool
) -> None:
    (host,) = place.hosts(1)
    command = "serve ${{ groups[0].replicas[0].IP_ADDRESS }}" if named else "serve"
    waits = place.run("app", type="service", port=80, replicas=2, commands=[command])
    run = place.again(b.run("app").with_(id=waits.run_id))
    place.save(run.with_(fleet_id=host.fleet_id, fleet_name="hosts", scales=(Scale(group="0", desired=2),)))
    there = {"status": status, "assignment": assignment_to(host, host.offer, place.at)}
    place.save(b.job(run, replica=1, replica_group="0", **there))
    waits = place.again(waits).with_(replica_group="0")
    (queued,) = loader(place).queue(b.PROJECT, [waits], (), place.at).queue
    assert queued.requirements.fleet_id == (host.fleet_id if bound else None)


def test_what_was_scaled_down_needs_no_spec_any_more(place: Engine) -> None:
    """A service that lives for months leaves replicas of many versions behind."""
    job = place.again(place.run("one"))
    run = place.again(b.run("one").with_(id=job.run_id))
    place.save(run.with_(deployment_num=3, scales=(Scale(group="0", desired=0),)))
    body = nouns.find(place.store, RunBody, keys.run_body(run.id, 0))
    assert body is not None
    place.save(body.with_(deployment_num=3, version=0))
    ended = job.with_(status=JobStatus.terminated, finished_at=place.at, due_at=None)
    failed, gone = (ended.with_(reason=reason) for reason in (JobReason.executor_error, JobReason.scaled_down))
    for last, wanted in ((failed, {0}), (gone, set())):
        place.save(last.with_(version=place.again(job).version))
        found = loader(place).run(run.id, place.at)
        assert found is not None
        assert found.former.keys() == wanted


def test_of_what_doors_have_seen_only_that_of_the_services_own_counts(place: Engine) -> None:
    run = place.again(b.run("one").with_(id=place.again(place.run("one")).run_id))
    serves = run.with_(scales=(Scale(group="0", desired=1),))
    place.save(serves)
    gateway = gateway_seats.gateway(run.project_id, b.host(0), b.host(1))
    first, second = gateway.replicas
    gateway = gateway.with_(replicas=(first, second.with_(state=ReplicaState.provisioning)))
    doors = [SERVER, *(door_of(gateway.id, num) for num in range(3))]
    place.save(gateway, *(Traffic(run_id=run.id, door=door, at=place.at) for door in doors))

    def doors_read(gateway_id: str | None) -> tuple[tuple[str, ...], list[str]]:
        place.save(serves.with_(version=place.again(run).version, gateway_id=gateway_id))
        found = loader(place).run(run.id, place.at)
        assert found is not None
        return found.doors, [each.door for each in found.traffic]

    assert doors_read(None) == ((SERVER,), [SERVER])
    assert doors_read(gateway.id) == ((doors[1],), doors[1:3])  # one that isn't ready yet lets nothing go, but counts
    assert doors_read("gone") == ((), [])


def test_a_page_of_the_queue_is_no_longer_than_asked_and_goes_on(place: Engine) -> None:
    jobs = [place.run(f"run-{number}", priority=number) for number in range(5)]
    read, cursor, seen = loader(place), None, []
    for _ in range(3):
        page, cursor = read.queue_page(b.PROJECT, cursor, 2)
        seen.append([job.run_name for job in page])
    assert seen == [["run-4", "run-3"], ["run-2", "run-1"], ["run-0"]]
    assert cursor is None
    assert [job.run_name for job in read.queued_of([jobs[1].run_id, jobs[3].run_id], b.PROJECT)] == ["run-3", "run-1"]
    assert read.queued_of([jobs[1].run_id], "another project") == []


def test_jobs_that_found_a_place_meanwhile_wait_no_more(place: Engine) -> None:
    place.hosts(1)
    first, second = place.run("first", priority=1), place.run("second")
    place.reconciler().run()
    assert [job.id for job in loader(place).still_waiting([first, second])] == [second.id]
    assert [job.id for job in loader(place).queued_of([first.run_id, second.run_id], b.PROJECT)] == [second.id]


def test_a_job_whose_run_is_gone_stays_in_the_queue_and_blocks_nobody(
    place: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound = place.run("broken"), place.run("sound")
    place.store.commit([Delete(keys.run(broken.run_id), None)])
    found = loader(place).queue(b.PROJECT, [broken, sound], (), place.at)
    assert [item.job.id for item in found.queue] == [sound.id]
    assert broken.id in caplog.text and "stays in the queue" in caplog.text


def test_a_fleets_youngest_are_found_before_any_index_shows_them() -> None:
    place = Engine.in_memory(lag=3600 * SECOND)
    hosts = place.hosts(YOUNG + 1)
    fleet = hosts[0].fleet_id
    found = loader(place).fleet(fleet, place.at)
    assert found is not None
    assert [each.num for each in found.view.instances] == list(range(1, YOUNG + 1))


def test_what_was_seen_terminated_isnt_read_again(place: Engine) -> None:
    hosts = place.hosts(2)
    place.save(place.again(hosts[1]).with_(status=InstanceStatus.terminated))
    found = loader(place).fleet(hosts[0].fleet_id, place.at)
    assert found is not None and [each.num for each in found.view.instances] == [0]


POLICY = {"min_gpu_utilization": 10, "time_window": "5m"}


def measured(place: Engine, minutes: int, **configuration: Any) -> Job:
    """A running job whose GPU has done nothing for so long, with a sample every ten seconds."""
    place.hosts(1)
    job = place.run("one", **configuration)
    place.reconciler().run()
    placed = place.again(job)
    assert placed.assignment is not None
    where = placed.assignment.with_(offer=b.offer(has=b.resources(gpus=1)))
    place.save(placed.with_(status=JobStatus.running, running_at=place.at, assignment=where))
    began = place.at
    place.clock.pass_(minutes * 60)
    gpus = [{"memory_usage_bytes": 1, "util_percent": 0.0}]
    points = [MetricPoint(task=job.id, at=at, gpus=gpus) for at in range(began, place.at, 10 * SECOND)]
    for start in range(0, len(points), 50):
        place.store.commit(metric_puts(points[start : start + 50], {job.id: job}, place.at, 7))
    return job


def test_samples_are_read_for_jobs_with_a_policy_once_its_window_has_passed(place: Engine) -> None:
    job = measured(place, 20, utilization_policy=POLICY)
    read = loader(place).run(job.run_id, place.at)
    assert read is not None
    samples = read.usage[job.id]
    assert samples[-1] == Sample(place.at - 10 * SECOND, (0.0,))
    assert (place.at - samples[0].at) // MINUTE == 10, "no further back than needed"
    early = loader(place).run(job.run_id, place.at - 16 * MINUTE)
    assert early is not None and early.usage == {}


@pytest.mark.slow
def test_an_agent_that_sends_samples_without_end_makes_no_pass_longer(place: Engine) -> None:
    job = measured(place, 61, utilization_policy={**POLICY, "time_window": "1h"})
    for start in range(0, MOST_SAMPLES, 50):
        points = [MetricPoint(task=job.id, at=place.at - at * SECOND) for at in range(start, start + 50)]
        place.store.commit(metric_puts(points, {job.id: job}, place.at, 7))
    read = loader(place).run(job.run_id, place.at)
    assert read is not None and len(read.usage[job.id]) == MOST_SAMPLES


def test_no_samples_are_read_without_a_policy(place: Engine) -> None:
    job = measured(place, 20)
    read = loader(place).run(job.run_id, place.at)
    assert read is not None and read.usage == {}


def test_a_run_that_wastes_its_gpu_ends_in_the_pass_that_its_policy_made_due(place: Engine) -> None:
    job = measured(place, 6, utilization_policy=POLICY)
    place.reconciler().run([f"run/{job.run_id}"])
    assert place.again(job).reason is JobReason.terminated_due_to_utilization_policy


@pytest.mark.parametrize("waits", [{"nodes": "1.."}, {"ssh_config": {"hosts": ["h0"]}}])
def test_a_fleet_that_waits_for_an_end_doesnt_count_the_dead_of_a_lagging_index(waits: Any) -> None:
    """One with a minimum, or with a host that is to be added again once it is cleared."""
    place = Engine.in_memory()
    fleet = place.fleet("cloud", **waits)
    gone = b.machine(0, fleet)
    again = ("h0:22",) if "ssh_config" in waits else ()
    place.save(place.again(fleet).with_(next_instance_num=YOUNG + 1, to_add=again), gone)
    seen = loader(place)
    place.store.max_lag = 3600 * SECOND
    ended = {"status": InstanceStatus.terminated, "finished_at": place.at, "due_at": None}
    place.save(place.again(gone).with_(**ended))
    found = seen.fleet(fleet.id, place.at)
    assert found is not None
    assert found.view.instances == ()
