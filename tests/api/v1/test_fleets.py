"""Fleets and instances under `/api/v1`."""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.tenants import ProjectRole
from chalicelib.store import nouns
from tests.api.rig import Rig
from tests.api.test_fleets import add_instance
from tests.api.v1.bodies import FLEET
from tests.api.v1.rest import Client


def fleets(api: Client) -> str:
    return f"/api/v1/projects/{api.project}/fleets"


def made(rig: Rig, api: Client, name: str = "pool", **more: object) -> Fleet:
    body = api.ok("POST", fleets(api), {**FLEET, "name": name, **more}, status=201)
    found = nouns.find(rig.world.plane.store, Fleet, keys.fleet(body["id"]))
    assert found is not None
    return found


def test_a_fleet_is_created_read_changed_and_deleted(rig: Rig) -> None:
    api = Client.of(rig)
    reply = api.call("POST", fleets(api), {**FLEET, "name": "pool"})
    assert (reply.status, reply.headers["Location"]) == (201, f"{fleets(api)}/pool")
    pool = api.ok("GET", f"{fleets(api)}/pool")
    assert (pool["status"], pool["revision"], pool["instances"], pool["spec"]["nodes"]["max"]) == ("active", 0, [], 2)
    spec = {**pool["spec"], "nodes": {"min": 0, "target": 0, "max": 5}}
    assert api.ok("PUT", f"{fleets(api)}/pool/spec", spec)["nodes"]["max"] == 5
    assert [(each["name"], each["revision"]) for each in api.ok("GET", "/api/v1/fleets")["items"]] == [("pool", 1)]
    assert api.call("DELETE", f"{fleets(api)}/pool").status == 202
    assert api.ok("GET", f"{fleets(api)}/pool")["status"] == "terminating"


def test_a_name_is_taken_once(rig: Rig) -> None:
    api = Client.of(rig)
    made(rig, api)
    for url in (fleets(api), f"{fleets(api)}?dry_run=true"):
        assert api.refused("POST", url, {**FLEET, "name": "pool", "nodes": 3})[:2] == (409, "already-exists")
    assert api.ok("GET", f"{fleets(api)}/pool")["revision"] == 0


def test_a_plan_says_what_machines_would_cost(rig: Rig) -> None:
    api = Client.of(rig)
    body = {
        "type": "fleet",
        "name": "big",
        "nodes": "1..3",
        "resources": {"cpu": "1..", "memory": "1GB..", "disk": "1GB.."},
    }
    for method, url in (("POST", fleets(api)), ("PUT", f"{fleets(api)}/big/spec")):
        plan = api.ok(method, f"{url}?dry_run=true", body)
        machines = plan["machines"]
        assert plan["action"] == "create" and (machines["at_once"], machines["most"]) == (1, 3)
        prices = [offer["price_per_hour_usd"] for offer in machines["best"]]
        assert 0 < len(prices) <= machines["offers"] and machines["cheapest_per_hour_usd"] == min(prices)
        assert machines["dearest_per_hour_usd"] >= max(prices)


def test_a_repeated_request_makes_one_fleet(rig: Rig) -> None:
    api = Client.of(rig)
    first, again = (api.call("POST", fleets(api), FLEET, idempotency_key="k") for _ in range(2))
    assert (first.status, first.body) == (again.status, again.body) and first.status == 201
    assert len(api.ok("GET", fleets(api))["items"]) == 1
    api.ok("DELETE", first.headers["Location"], status=202)


def test_pages_follow_each_other(rig: Rig) -> None:
    api = Client.of(rig)
    for number in range(3):
        made(rig, api, f"pool-{number}")
        rig.world.clock.pass_(1)
    first = api.ok("GET", f"{fleets(api)}?limit=2")
    second = api.ok("GET", f"{fleets(api)}?limit=2&cursor={first['next']}")
    names = [each["name"] for each in (*first["items"], *second["items"])]
    assert names == ["pool-2", "pool-1", "pool-0"] and second["next"] is None


def test_what_was_applied_by_another_client_is_changed_in_place(rig: Rig) -> None:
    """Its profile and its file's name aren't in the configuration, and stay."""
    api = Client.of(rig)
    written = {**FLEET, "name": "pool"}
    spec = {"configuration": written, "configuration_path": "pool.dstack.yml", "profile": {"name": "default"}}
    rig.ok("P/fleets/apply", {"plan": {"spec": spec}, "force": False})
    api.ok("PUT", f"{fleets(api)}/pool/spec", {**written, "nodes": {"min": 0, "target": 0, "max": 7}})
    assert api.ok("GET", f"{fleets(api)}/pool")["revision"] == 1


def test_a_machine_is_listed_read_and_deleted(rig: Rig) -> None:
    api = Client.of(rig)
    pool = {"id": made(rig, api).id, "name": "pool"}
    add_instance(rig, pool, 0, status=InstanceStatus.idle)
    (machine,) = api.ok("GET", f"/api/v1/instances?fleet_id={pool['id']}")["items"]
    assert (machine["fleet"], machine["num"], machine["status"]) == ("pool", 0, "idle")
    assert api.ok("GET", machine["url"]) == machine
    assert machine["resources"]["cpus"] > 0 and machine["price_per_hour_usd"] > 0
    assert api.ok("GET", f"/api/v1/projects/{api.project}/instances")["items"] == [machine]
    assert api.ok("GET", f"{fleets(api)}/pool")["instances"] == [machine]
    assert api.ok("GET", f"{fleets(api)}/pool/instances/0/health") == {"items": []}
    assert api.call("DELETE", f"{fleets(api)}/pool/instances/0").status == 202
    assert api.ok("GET", machine["url"])["status"] == "terminating"
    for odd in ("1", "x", "٣", "1" * 9):
        assert api.refused("DELETE", f"{fleets(api)}/pool/instances/{odd}")[:2] == (404, "not-found")


def test_values_of_environment_variables_are_for_who_made_the_fleet(rig: Rig) -> None:
    api, other = Client.of(rig), Client.of(rig, token=rig.user("ann", ProjectRole.user))
    made(rig, api, env={"KEY": "hunter2"})
    for path in (f"{fleets(api)}/pool", f"{fleets(api)}/pool/spec"):
        assert b"hunter2" in api.call("GET", path).body
        assert b"hunter2" not in other.call("GET", path).body
