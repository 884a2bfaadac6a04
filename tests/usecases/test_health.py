"""A machine's health as its agent reports it: kept with the instance's presence, and as a history."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.errors import Invalid
from chalicelib.usecases.health import KEPT_SECONDS
from tests.usecases.cluster import INSTANCE, Cluster
from tests.world.plane import World

FULL = {"status": "failure", "message": "the disk under /data is full", "age": 90}
LOW = {"status": "warning", "message": "the disk under /data is nearly full", "age": 0}
UNIT = f"instance/{INSTANCE}"


@pytest.fixture
def cluster(world: World) -> Cluster:
    made = Cluster.of(world)
    made.agent.join()
    world.take_woken()
    return made


def history(cluster: Cluster) -> list[Any]:
    return cluster.world.plane.store.query("main", keys.health_check(INSTANCE, 0, "").pk).records


def test_a_change_is_kept_and_wakes_the_instance(cluster: Cluster) -> None:
    cluster.agent.say(health=[FULL])
    health = cluster.presence.health
    assert health is not None and (health.status, health.message) == ("failure", FULL["message"])
    assert health.troubles[0].since == cluster.world.at - 90 * SECOND, "by our clock"
    assert UNIT in cluster.world.take_woken()
    (record,) = history(cluster)
    assert record.expires_at == cluster.world.at // SECOND + KEPT_SECONDS


def test_the_same_again_writes_nothing(cluster: Cluster) -> None:
    cluster.agent.say(health=[FULL])
    cluster.world.take_woken()
    before = cluster.presence
    cluster.agent.say(health=[{**FULL, "age": 95}])
    cluster.agent.say()
    assert (cluster.presence, len(history(cluster))) == (before, 1)
    assert UNIT not in cluster.world.take_woken()


def test_a_repeated_message_changes_nothing(cluster: Cluster) -> None:
    cluster.agent.seq += 1
    late = cluster.agent.message(health=[FULL])
    cluster.agent.say(health=[LOW])
    cluster.agent.send(late)
    assert cluster.presence.health is not None and cluster.presence.health.status == "warning"


def test_a_recovery_is_a_check_too(cluster: Cluster) -> None:
    cluster.agent.say(health=[FULL])
    cluster.world.clock.pass_(120)
    cluster.agent.say(health=[])
    assert cluster.presence.health is not None and cluster.presence.health.status == "healthy"
    assert len(history(cluster)) == 2


def test_a_machine_that_cant_decide_fills_no_store(cluster: Cluster) -> None:
    for _ in range(50):
        cluster.agent.say(health=[FULL])
        cluster.agent.say(health=[])
    assert len(history(cluster)) == 2, "one a minute for each status"


@pytest.mark.parametrize(
    "wrong", [[{"status": "bad", "message": "x"}], [{"status": "failure", "message": ""}], [FULL] * 17]
)
def test_what_no_agent_of_ours_says_is_refused(cluster: Cluster, wrong: Any) -> None:
    with pytest.raises(Invalid):
        cluster.agent.say(health=wrong)


# --- a clock that is wrong --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [-10 * MINUTE, 10 * MINUTE])
def test_times_of_a_machine_are_read_by_its_own_clock(cluster: Cluster, wrong: int) -> None:
    job = cluster.place()
    own = cluster.world.at + wrong
    point = {"task": job.id, "at": own - 5 * SECOND}
    cluster.agent.say(at=own, metrics=[point])
    (key,) = (r.key for r in cluster.world.plane.store.query("main", keys.metric(job.id, 0).pk).records)
    assert key == keys.metric(job.id, cluster.world.at - 5 * SECOND)
    cluster.world.clock.pass_(20)  # the same message once more, as when a poll that it waited in is answered
    cluster.agent.say(at=own, metrics=[point])
    assert len(cluster.world.plane.store.query("main", keys.metric(job.id, 0).pk).records) == 1


def test_a_clock_that_is_about_right_is_left_alone(cluster: Cluster) -> None:
    cluster.agent.say(at=cluster.world.at - 30 * SECOND)
    assert cluster.presence.clock_off == 0
