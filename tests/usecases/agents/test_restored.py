"""A server that was restored from a backup answers agents that know more than its records: it ends nothing, and notes
what it meets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.instants import HOUR, MINUTE
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.restorations import Restoration
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.engine.hold import RestoredHold, go_on
from chalicelib.errors import Forbidden
from chalicelib.store import nouns
from chalicelib.store.port import Delete
from chalicelib.usecases.agents.calls import has_news
from tests.usecases.cluster import Agent, Cluster, exited, running, wants
from tests.world.plane import World

STRANGER = "99999999-9999-4999-8999-999999999999"


@pytest.fixture
def cluster(world: World) -> Cluster:
    """A host with a job that runs. Then the server is restored."""
    made = Cluster.of(world)
    made.agent.join()
    job = made.place()
    made.agent.sync({"id": job.id, "state": "preparing"})
    made.agent.sync(running(job))
    assert made.job(job).status is JobStatus.running
    world.save(Restoration(as_of=world.at - HOUR, at=world.at, looks_until=world.at + HOUR))
    world.plane = replace(world.plane, hold=RestoredHold(world.store, world.clock))
    world.take_woken()
    return made


def met(cluster: Cluster) -> set[tuple[str, str]]:
    hold: Any = cluster.world.plane.hold
    hold.refresh()
    return {(each.kind, each.id) for each in hold.mark.met}


def after(cluster: Cluster) -> None:
    """An operator lets it act."""
    go_on(cluster.world.store, cluster.world.clock)
    hold: Any = cluster.world.plane.hold
    assert not hold.refresh()


def test_a_task_that_isnt_recorded_goes_on_and_is_noted(cluster: Cluster) -> None:
    job = cluster.jobs[0]
    answer = cluster.agent.sync(running(job), {"id": STRANGER, "state": "running"})
    assert wants(answer) == {job.id: "run"} and not has_news(answer)
    assert met(cluster) == {("task", STRANGER)}
    after(cluster)
    assert wants(cluster.agent.sync(running(job), {"id": STRANGER, "state": "running"}))[STRANGER] == "remove"


def test_a_job_that_its_agent_doesnt_list_is_left_until_the_server_acts(cluster: Cluster) -> None:
    job = cluster.jobs[0]
    cluster.agent.sync()
    assert cluster.job(job).status is JobStatus.running and met(cluster) == {("job", job.id)}
    after(cluster)
    cluster.agent.sync()
    assert cluster.job(job).finished


def test_a_job_that_was_to_begin_isnt_sent_because_it_may_have_been_there_since(cluster: Cluster) -> None:
    job = cluster.place("next")
    answer = cluster.agent.sync(running(cluster.jobs[0]))
    assert job.id not in wants(answer) and met(cluster) == {("job", job.id)}
    assert cluster.job(job).status is JobStatus.provisioning
    after(cluster)
    assert wants(cluster.agent.sync(running(cluster.jobs[0])))[job.id] == "run"


def test_what_an_agent_reports_counts_all_the_same(cluster: Cluster) -> None:
    job = cluster.jobs[0]
    cluster.agent.seq += 1_000  # of messages that the restored record doesn't know
    cluster.agent.sync(exited(job))
    assert cluster.job(job).finished and met(cluster) == set()


def test_another_process_of_the_agent_than_the_recorded_one_is_heard(cluster: Cluster) -> None:
    job = cluster.jobs[0]
    cluster.agent.boot = "boot-7"
    cluster.agent.sync(exited(job))
    assert cluster.job(job).finished


@pytest.mark.parametrize("known", ["terminated", "erased"])
def test_a_machine_that_the_records_take_for_ended_isnt_sent_away(cluster: Cluster, known: str) -> None:
    host = cluster.instance
    if known == "terminated":
        cluster.save(host.with_(status=InstanceStatus.terminated, claims=()))
    else:
        cluster.world.store.commit([Delete(nouns.key_of(host)), Delete(nouns.key_of(cluster.presence))])
        cluster.agent.credential = bootstrap_token(cluster.world.plane.install_key, host.id, 0)
    with pytest.raises(Forbidden, match="only looks"):
        cluster.agent.sync()
    assert met(cluster) == {("agent", host.id)}
    after(cluster)
    assert cluster.agent.sync()["error"] == "gone"


def test_an_agent_of_a_machine_that_was_bought_since_is_noted(cluster: Cluster) -> None:
    agent = Agent(cluster.world, STRANGER, credential=f"{STRANGER}.secret")
    with pytest.raises(Forbidden):
        agent.sync()
    assert met(cluster) == {("agent", STRANGER)}


def test_a_gateway_that_was_put_there_since_stays(cluster: Cluster) -> None:
    report = {"id": "edge", "num": 0, "http": 80, "https": 443, "state": "running"}
    answer = cluster.agent.sync(running(cluster.jobs[0]), gateway=report)
    assert answer["gateway"] == {"id": "edge", "num": 0, "http": 80, "https": 443} and not has_news(answer)
    after(cluster)
    assert "gateway" not in cluster.agent.sync(running(cluster.jobs[0]), gateway=report)


def test_it_acts_by_itself_after_an_hour(cluster: Cluster) -> None:
    hold: Any = cluster.world.plane.hold
    cluster.world.at += HOUR - MINUTE
    assert hold.refresh()
    cluster.world.at += 2 * MINUTE
    assert not hold.looking and not hold.refresh()
    assert wants(cluster.agent.sync({"id": STRANGER, "state": "running"}))[STRANGER] == "remove"


def test_the_word_that_comes_while_something_is_noted_isnt_lost(cluster: Cluster) -> None:
    hold: Any = cluster.world.plane.hold
    cluster.agent.sync(running(cluster.jobs[0]), {"id": STRANGER, "state": "running"})
    go_on(cluster.world.store, cluster.world.clock)
    assert not hold.refresh() and hold.mark.went_on_at is not None
    assert met(cluster) == {("task", STRANGER)}
    assert go_on(cluster.world.store, cluster.world.clock) == hold.mark, "once is enough"


def test_a_server_that_wasnt_restored_holds_nothing(world: World) -> None:
    hold = RestoredHold(world.store, world.clock)
    assert not hold.looking and not hold.refresh() and go_on(world.store, world.clock) is None
