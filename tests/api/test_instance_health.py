"""An instance's health over the API: its status, and the history of its checks."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.instances import Health, Instance, Trouble
from chalicelib.domain.instants import MINUTE, iso
from chalicelib.domain.tenants import ProjectRole
from chalicelib.usecases.machines import health
from chalicelib.usecases.machines.health import check_put
from tests.api.rig import Rig, fleet
from tests.api.test_fleets import add_instance, create

PATH = "P/instances/get_instance_health_checks"


@pytest.fixture
def instance(rig: Rig) -> Instance:
    return add_instance(rig, create(rig, fleet()))


def check(rig: Rig, instance: Instance, minutes_ago: int, *troubles: tuple[Any, str]) -> int:
    at = rig.world.at - minutes_ago * MINUTE
    health = Health(troubles=tuple(Trouble(status=status, message=text, since=at - 7) for status, text in troubles))
    rig.world.plane.store.commit([check_put(instance.id, health, at)])
    return at


def listed(rig: Rig, **wanted: Any) -> list[Any]:
    found = rig.ok(PATH, {"fleet_name": "pool", "instance_num": 0, **wanted})
    checks: list[Any] = found["health_checks"]
    return checks


def test_the_history_newest_first(rig: Rig, instance: Instance) -> None:
    first = check(rig, instance, 30, ("failure", "disk full"), ("warning", "Xid 63"))
    second = check(rig, instance, 10)
    assert listed(rig) == [
        {"collected_at": iso(second), "status": "healthy", "events": []},
        {
            "collected_at": iso(first),
            "status": "failure",
            "events": [
                {"timestamp": iso(first - 7), "status": "failure", "message": "disk full"},
                {"timestamp": iso(first - 7), "status": "warning", "message": "Xid 63"},
            ],
        },
    ]


def test_a_part_of_the_history(rig: Rig, instance: Instance) -> None:
    times = [iso(check(rig, instance, ago)) for ago in (30, 20, 10)]
    assert [each["collected_at"] for each in listed(rig, limit=1)] == [times[2]]
    assert [each["collected_at"] for each in listed(rig, after=times[0])] == [times[2], times[1]]
    assert [each["collected_at"] for each in listed(rig, before=times[1])] == [times[0]]
    assert listed(rig, after=times[2]) == []


def test_of_a_long_history_the_newest_before_a_moment_are_shown(
    rig: Rig, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "MOST", 3)
    times = [iso(check(rig, instance, ago)) for ago in (50, 40, 30, 20, 10)]
    assert [each["collected_at"] for each in listed(rig, before=times[3])] == [times[2], times[1]]


def test_an_instance_that_isnt_there(rig: Rig, instance: Instance) -> None:
    assert rig.refused(PATH, {"fleet_name": "pool", "instance_num": 1}) == (
        f"There is no instance pool-1 in project {rig.project.name}."
    )
    assert "no instance other-0" in rig.refused(PATH, {"fleet_name": "other", "instance_num": 0})


def test_another_projects_instances_stay_its_own(rig: Rig, instance: Instance) -> None:
    check(rig, instance, 1, ("failure", "disk full"))
    other = rig.another_project("other")
    token = rig.user("bob", ProjectRole.admin, other)
    path = f"/api/project/{other.name}/instances/get_instance_health_checks"
    reply = rig.call(path, {"fleet_name": "pool", "instance_num": 0}, token=token)
    assert reply.status == 400 and "no instance" in str(reply.json)


def test_an_instance_shows_its_health_and_what_is_wrong(rig: Rig, instance: Instance) -> None:
    found = rig.ok("P/instances/get", {"id": instance.id})
    assert (found["health_status"], found["health_message"]) == ("healthy", None)
    rig.save(instance.with_(version=1, health="failure", health_message="disk full"))
    found = rig.ok("P/instances/get", {"id": instance.id})
    assert (found["health_status"], found["health_message"]) == ("failure", "disk full")
