"""The other nouns through the clients: each from its creation to its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dstack_serverless import AlreadyExists, Invalid, NotFound, WaitedTooLong
from dstack_serverless.configurations import Fleet
from tests.sdk.conftest import User, waited


@pytest.mark.slow
def test_fleets_and_their_machines(user: User) -> None:
    file = user.home / "fleet.dstack.yml"
    file.write_text("{type: fleet, name: two, nodes: 2}")
    assert user.fleets.plan(file)["action"] == "create"
    assert user.fleets.apply(file)["name"] == "two"
    fleet = user.fleets.wait("two", 2, timeout=600)
    numbers = [one["instance_num"] for one in fleet["instances"]]
    assert [one["fleet_name"] for one in user.instances.list(fleets=[fleet["id"]])] == ["two", "two"]
    assert user.instances.get(fleet["instances"][0]["id"])["instance_num"] == numbers[0]
    changed = user.fleets.apply(Fleet.model_validate({"name": "two", "nodes": {"min": 2, "target": 2, "max": 5}}))
    assert changed["id"] == fleet["id"]
    assert {each["name"] for each in user.fleets.list()} == {"two", "cloud"}
    user.fleets.delete_instances("two", numbers[0])
    user.fleets.delete("two")
    with pytest.raises(WaitedTooLong, match="cloud is still active after 5 s"):
        user.fleets.wait("cloud", 1, timeout=5)


def test_hosts_of_a_fleet_bring_their_keys(user: User) -> None:
    with pytest.raises(Invalid) as refused:
        user.fleets.apply(
            {
                "type": "fleet",
                "name": "own",
                "ssh_config": {"user": "me", "identity_file": "~/none", "hosts": ["10.0.0.1"]},
            }
        )
    assert refused.value.problems[0].path == "ssh_config.identity_file"


@pytest.mark.slow
def test_volumes(user: User) -> None:
    volume = {"type": "volume", "name": "data", "backend": "fake", "region": "eu-1", "size": "10GB"}
    backends = {offer["backend"]: offer["region"] for offer in user.offers.list(limit=1)}
    ((backend, region),) = backends.items()
    volume |= {"backend": backend, "region": region}
    assert user.volumes.create(volume)["status"] == "submitted"
    assert user.volumes.wait("data", timeout=600)["status"] == user.volumes.get("data")["status"] == "active"
    with pytest.raises(AlreadyExists):
        user.volumes.create(volume)
    assert [each["name"] for each in user.volumes.list()] == ["data"]
    user.volumes.delete("data")
    user.site.time.pass_(60)
    with pytest.raises(NotFound):
        user.volumes.get("data")


@pytest.mark.slow
def test_gateways(user: User) -> None:
    ((backend, region),) = {offer["backend"]: offer["region"] for offer in user.offers.list(limit=1)}.items()
    gateway = {"type": "gateway", "name": "door", "backend": backend, "region": region, "domain": "x.example"}
    assert user.gateways.plan(gateway)["action"] == "create"
    assert user.gateways.apply(gateway)["status"] == "submitted"
    user.gateways.set_default("door")
    (found,) = user.gateways.list()
    assert found["default"] and user.gateways.get("door")["name"] == "door"
    with pytest.raises(WaitedTooLong, match="The gateway door is still"):
        user.gateways.wait("door", timeout=1)
    user.gateways.delete("door")


def test_offers(user: User) -> None:
    offers = user.offers.list({"gpu": "1.."}, limit=3)
    assert len(offers) == 3 and all(offer["instance"]["resources"]["gpus"] for offer in offers)
    assert [offer["price"] for offer in offers] == sorted(offer["price"] for offer in offers)
    assert user.offers.list({"gpu": "1.."}, max_price=0.0001) == []
    with pytest.raises(Invalid, match="spot_policy"):
        user.offers.list(spot_policy="never")


@pytest.mark.slow
def test_projects_users_and_secrets(user: User) -> None:
    assert user.users.me()["username"] == "admin"
    made = user.users.create("ann", email="ann@x.example")
    assert made["creds"]["token"] and user.users.get("ann")["email"] == "ann@x.example"
    assert {each["username"] for each in user.users.list()} == {"admin", "ann"}
    user.projects.create("other", is_public=True)
    assert {each["project_name"] for each in user.projects.list()} == {"main", "other"}
    assert [each["user"]["username"] for each in user.projects.add_members({"ann": "manager"})["members"]] == [
        *("admin", "ann")
    ]
    assert len(user.projects.remove_members("ann")["members"]) == len(user.projects.get()["members"]) == 1
    user.projects.delete("other")
    user.users.delete("ann")
    user.secrets.set("key", "one")
    assert user.secrets.set("key", "two")["name"] == "key" and user.secrets.get("key")["value"] == "two"
    assert [each["name"] for each in user.secrets.list()] == ["key"]
    user.secrets.delete("key")
    assert user.secrets.list() == []


@pytest.mark.slow
def test_what_happened_and_what_happens(user: User) -> None:
    now = datetime.fromtimestamp(user.site.time.seconds(), UTC)
    run = user.runs.apply({"type": "task", "name": "small", "commands": ["true"]})
    user.runs.wait("small")
    events = user.events.list(run_id=run["id"])
    assert events[-1]["message"] == "submitted" and len(user.events.list(limit=2)) == 2
    dates = [event["recorded_at"] for event in events]
    assert dates == sorted(dates, reverse=True)
    changes = _first(user, now - timedelta(seconds=1), 5)
    assert [change["time"] for change in changes] == sorted(change["time"] for change in changes)
    assert len({change["id"] for change in changes}) == 5


def _first(user: User, since: datetime, count: int) -> list[Any]:
    """Of a flow that doesn't end."""
    found = user.client.events.follow(since)
    if user.kind == "sync":
        return [next(found) for _ in range(count)]

    async def collected() -> list[Any]:
        return [await anext(found) for _ in range(count)]

    return list(waited(collected()))
