"""A machine's health from its agent's reports: stored with the instance's presence, and as a history."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.tenants import Project
from chalicelib.errors import Invalid, NotFound
from chalicelib.store import nouns
from chalicelib.usecases.machines.health import MOST, WantedChecks, check_put, health_of, list_checks
from tests.usecases.cluster import FLEET, INSTANCE, PROJECT, Cluster
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
    cluster.agent.sync(health=[FULL])
    health = cluster.presence.health
    assert health is not None and (health.status, health.message) == ("failure", FULL["message"])
    assert health.troubles[0].since == cluster.world.at - 90 * SECOND, "by our clock"
    assert UNIT in cluster.world.take_woken()
    (record,) = history(cluster)
    assert (record.version, record.expires_at) == (1, cluster.world.at // SECOND + 7 * 86_400)


def test_trouble_without_an_age_is_new(cluster: Cluster) -> None:
    cluster.agent.sync(health=[{"status": "warning", "message": "hot"}])
    health = cluster.presence.health
    assert health is not None and health.troubles[0].since == cluster.world.at


@pytest.fixture
def checked(cluster: Cluster) -> Cluster:
    """Checks of seven minutes, the newest now."""
    health, now = health_of([], 0), cluster.world.at
    puts = [check_put(INSTANCE, health, now - ago * MINUTE) for ago in range(7)]
    pointer = nouns.pointer(keys.fleet_name(PROJECT, "local"), FLEET.id)
    cluster.world.store.commit([*puts, pointer])
    return cluster


def ages(cluster: Cluster, **wanted: Any) -> list[int]:
    """In minutes."""
    project = Project(id=PROJECT, name="main", owner_id="u", created_at=0)
    now, num = cluster.world.at, wanted.pop("num", 0)
    found = list_checks(cluster.world.plane, project, WantedChecks("local", num, **wanted))
    return [(now - check.at) // MINUTE for check in found]


def test_checks_are_shown_newest_first_between_two_moments(checked: Cluster) -> None:
    now = checked.world.at
    assert ages(checked) == [0, 1, 2, 3, 4, 5, 6]
    assert ages(checked, limit=2) == [0, 1]
    assert ages(checked, after=now - 3 * MINUTE) == [0, 1, 2]
    assert ages(checked, before=now - 3 * MINUTE) == [4, 5, 6]
    assert ages(checked, after=now - 5 * MINUTE - 1, before=now - 3 * MINUTE + 1) == [3, 4, 5]


def test_of_very_many_checks_the_newest_are_shown(checked: Cluster) -> None:
    health, now = health_of([], 0), checked.world.at
    for start in range(7, MOST + 7, 100):
        checked.world.store.commit(
            [check_put(INSTANCE, health, now - ago * MINUTE) for ago in range(start, start + 100)]
        )
    assert ages(checked) == ages(checked, limit=MOST + 50) == list(range(MOST))


def test_checks_of_an_instance_that_isnt_there_are_refused(checked: Cluster) -> None:
    with pytest.raises(NotFound, match="no instance local-3 in project main"):
        ages(checked, num=3)


def test_the_same_again_writes_nothing(cluster: Cluster) -> None:
    cluster.agent.sync(health=[FULL])
    cluster.world.take_woken()
    before = cluster.presence
    cluster.agent.sync(health=[{**FULL, "age": 95}])
    cluster.agent.sync()
    assert (cluster.presence, len(history(cluster))) == (before, 1)
    assert UNIT not in cluster.world.take_woken()


def test_a_repeated_message_changes_nothing(cluster: Cluster) -> None:
    cluster.agent.seq += 1
    late = cluster.agent.message(health=[FULL])
    cluster.agent.sync(health=[LOW])
    cluster.agent.send(late)
    assert cluster.presence.health is not None and cluster.presence.health.status == "warning"


def test_a_recovery_is_a_check_too(cluster: Cluster) -> None:
    cluster.agent.sync(health=[FULL])
    cluster.world.clock.pass_(120)
    cluster.agent.sync(health=[])
    assert cluster.presence.health is not None and cluster.presence.health.status == "healthy"
    assert len(history(cluster)) == 2


@pytest.mark.slow
def test_a_machine_that_cant_decide_fills_no_store(cluster: Cluster) -> None:
    for _ in range(50):
        cluster.agent.sync(health=[FULL])
        cluster.agent.sync(health=[])
    assert len(history(cluster)) == 2, "one a minute for each status"


@pytest.mark.parametrize(
    "wrong", [[{"status": "bad", "message": "x"}], [{"status": "failure", "message": ""}], [FULL] * 17]
)
def test_what_no_agent_of_ours_says_is_refused(cluster: Cluster, wrong: Any) -> None:
    with pytest.raises(Invalid):
        cluster.agent.sync(health=wrong)


# --- a clock that is wrong --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [-10 * MINUTE, 10 * MINUTE])
def test_times_of_a_machine_are_read_by_its_own_clock(cluster: Cluster, wrong: int) -> None:
    job = cluster.place()
    own = cluster.world.at + wrong
    point = {"task": job.id, "at": own - 5 * SECOND}
    cluster.agent.sync(at=own, metrics=[point])
    (key,) = (r.key for r in cluster.world.plane.store.query("main", keys.metric(job.id, 0).pk).records)
    assert key == keys.metric(job.id, cluster.world.at - 5 * SECOND)
    cluster.world.clock.pass_(20)  # the same message once more, as when a poll that it waited in is answered
    cluster.agent.sync(at=own, metrics=[point])
    assert len(cluster.world.plane.store.query("main", keys.metric(job.id, 0).pk).records) == 1


def test_an_agent_that_tells_no_time_any_more_is_taken_to_have_the_right_one(cluster: Cluster) -> None:
    cluster.agent.sync(at=cluster.world.at - 10 * MINUTE)
    assert cluster.presence.clock_off == 10 * MINUTE
    cluster.agent.sync()
    assert cluster.presence.clock_off == 0


def test_a_clock_that_is_about_right_is_left_alone(cluster: Cluster) -> None:
    cluster.agent.sync(at=cluster.world.at - 30 * SECOND)
    assert cluster.presence.clock_off == 0
