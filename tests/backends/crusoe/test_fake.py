"""Crusoe's fake, driven by a plain client: over HTTP once, and for its traps inside the process."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from chalicelib.domain.instants import SECOND
from tests.backends.clock import Clock
from tests.backends.crusoe.fake import PROJECT, SECRET, Crusoe, capacity_of, quota, signature
from tests.backends.crusoe.plain import DISKS, EAST, INSTANCES, VM, Client, machine, made, names
from tests.backends.fakes.script import Answer, Cut, Fault, Rate, Script, misses, repeats
from tests.backends.fakes.transport import InProcess, serving


def test_a_machines_life_over_http(clock: Clock, crusoe: Crusoe) -> None:
    with serving(crusoe) as address, requests.Session() as session:
        call = Client(clock, session, address)
        status, created = call("POST", INSTANCES, machine())
        operation = created["operation"]
        assert (status, operation["state"], operation["completed_at"]) == (200, "IN_PROGRESS", "")
        where = f"{INSTANCES}/{operation['metadata']['id']}"
        assert call("GET", where)[1]["state"] == "STATE_CREATING"
        clock.passes(60)
        assert call("GET", f"{INSTANCES}/operations/{operation['operation_id']}")[1]["state"] == "SUCCEEDED"
        shown = call("GET", where)[1]
        assert shown["state"] == "STATE_RUNNING"
        assert shown["network_interfaces"][0]["ips"][0]["public_ipv4"]["address"]
        assert call("DELETE", where)[0] == 200
        assert call("GET", where)[1]["state"] == "STATE_DELETING"
        clock.passes(20)
        assert call("GET", where)[0] == 403, "what isn't there is nobody's to see"
        assert list(crusoe.books.existing("vm")) == []


def test_a_connection_is_cut_over_http_after_the_effect(clock: Clock, crusoe: Crusoe, script: Script) -> None:
    script.faults.append(Fault("createInstance", Cut, when="after"))
    with serving(crusoe) as address, requests.Session() as session:
        call = Client(clock, session, address)
        with pytest.raises(requests.ConnectionError):
            call("POST", INSTANCES, machine())
        assert names(call("GET", INSTANCES, names="one")) == ["one"]


# --- what is refused -------------------------------------------------------------------------------------------------


def test_the_signature_is_the_one_that_crusoe_computes() -> None:
    target = f"/v1/projects/{PROJECT}/compute/vms/instances?names=gpu-a&limit=20"
    assert signature(SECRET, "GET", target, "2026-01-02T03:04:05Z") == "XbtCGnlK2oRLx8MWDbzKITSzInIVjYlun0P3VNtUdUc"


def test_a_wrong_signature_and_a_wrong_clock_are_refused(clock: Clock, crusoe: Crusoe, call: Client) -> None:
    session = requests.Session()
    session.mount("https://", InProcess(crusoe))
    wrong = Client(clock, session, "https://api.crusoe.example", SECRET[::-1])
    late = Client(Clock(clock.at - 3600 * SECOND), session, "https://api.crusoe.example")
    for client in (wrong, late):
        status, body = client("GET", "/locations")
        assert (status, body["code"]) == (401, "bad_credential")
    assert call("GET", "/locations")[0] == 200


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "red"}, "body.colour: unknown field"),
        ({"name": 7}, "body.name: 7 is not of type"),
        ({"ssh_public_key": None}, "body.ssh_public_key"),
        ({"disks": [{"disk_id": "x", "mode": "read-write"}]}, "body.disks.0.attachment_type: attachment_type is req"),
        ({"disks": [{"disk_id": "x", "mode": "rw", "attachment_type": "data"}]}, "body.disks.0.mode: 'rw' is not one"),
        ({"type": "h100.8x"}, "no h100.8x"),
        ({"disks": [{"disk_id": "x", "mode": "read-write", "attachment_type": "data"}]}, "no disk x"),
    ],
)
def test_what_crusoe_doesnt_take_is_refused(call: Client, crusoe: Crusoe, change: dict[str, Any], message: str) -> None:
    status, body = call("POST", INSTANCES, machine(**change))
    assert (status, body["code"]) == (400, "bad_request") and message in body["message"]
    assert list(crusoe.books.existing()) == []


def test_unknown_parameters_and_routes_are_refused(call: Client) -> None:
    assert "query.page: unknown parameter" in call("GET", INSTANCES, page="2")[1]["message"]
    assert call("GET", "/projects")[0] == 404
    assert call("GET", f"{INSTANCES}/operations/{PROJECT}")[0] == 403, "an operation that is unknown, or expired"


@pytest.mark.parametrize("unique", [True, False])
def test_names_are_unique_or_not(call: Client, crusoe: Crusoe, unique: bool) -> None:
    crusoe.unique_names = unique
    made(call("POST", INSTANCES, machine()))
    assert call("POST", INSTANCES, machine())[0] == (400 if unique else 200)


# --- what runs out ---------------------------------------------------------------------------------------------------


def test_a_quota_is_refused_at_once(call: Client, crusoe: Crusoe, script: Script, clock: Clock) -> None:
    script.limits[quota(VM)] = 3
    first = made(call("POST", INSTANCES, machine()))
    status, body = call("POST", INSTANCES, machine("two"))
    assert status == 400 and "quota of c1a exceeded" in body["message"]
    rows = call("GET", f"/projects/{PROJECT}/quotas")[1]["quotas"]
    (row,) = [row for row in rows if (row["programmatic_name"], row["category"]) == ("c1a", "Instances")]
    assert (row["max"], row["used"], row["available"]) == (3, 2, 1)
    call("DELETE", f"{INSTANCES}/{first}")
    clock.passes(20)
    made(call("POST", INSTANCES, machine("two")))


def test_stock_runs_out_after_the_answer_and_leaves_the_data_disk(
    call: Client, crusoe: Crusoe, script: Script, clock: Clock
) -> None:
    script.limits[capacity_of(EAST, VM)] = 0
    disk = made(call("POST", DISKS, {"name": "data", "location": EAST, "size": "100GiB"}))
    attached = [{"disk_id": disk, "mode": "read-write", "attachment_type": "data"}]
    status, body = call("POST", INSTANCES, machine(disks=attached))
    clock.passes(60)
    _, operation = call("GET", f"{INSTANCES}/operations/{body['operation']['operation_id']}")
    assert (status, operation["state"], operation["result"]["code"]) == (200, "FAILED", "out_of_stock")
    assert names(call("GET", INSTANCES)) == [] and names(call("GET", DISKS)) == ["data"]
    assert [each["quantity"] for each in call("GET", "/capacities", product_name=VM, location=EAST)[1]["items"]] == [0]


def test_a_data_disk_outlives_its_machine(call: Client, crusoe: Crusoe, clock: Clock) -> None:
    disk = made(call("POST", DISKS, {"name": "data", "location": EAST, "size": "100GiB"}))
    attached = [{"disk_id": disk, "mode": "read-write", "attachment_type": "data"}]
    vm = made(call("POST", INSTANCES, machine(disks=attached)))
    assert sorted(names(call("GET", DISKS))) == ["data", "one-os"]
    assert names(call("GET", DISKS, exclude_os="true", location=EAST)) == ["data"]
    assert names(call("GET", DISKS, disk_ids=disk, disk_names="data,other")) == ["data"]
    assert (
        call("DELETE", f"{DISKS}/{disk}")[0] == 400
        and call("POST", INSTANCES, machine("two", disks=attached))[0] == 400
    )
    call("DELETE", f"{INSTANCES}/{vm}")
    clock.passes(20)
    assert names(call("GET", DISKS)) == ["data"]
    made(call("DELETE", f"{DISKS}/{disk}"))
    clock.passes(5)
    assert list(crusoe.books.existing("disk")) == []


# --- what lies -------------------------------------------------------------------------------------------------------


def test_pages_and_their_tokens(call: Client, script: Script) -> None:
    for number in range(5):
        made(call("POST", INSTANCES, machine(f"n{number}")))
    script.page = 2
    found: list[str] = []
    token: dict[str, str] = {}
    while True:
        _, body = call("GET", INSTANCES, locations=EAST, **token)
        found += [each["name"] for each in body["items"]]
        if "next_page_token" not in body:
            break
        token = {"next_token": body["next_page_token"]}
    assert found == [f"n{number}" for number in range(5)]
    assert call("GET", INSTANCES, **token)[0] == 400, "the token is of the listing with `locations`"
    assert call("GET", INSTANCES, next_token="2")[0] == 400


def test_what_was_created_shows_after_its_lag(call: Client, crusoe: Crusoe, script: Script, clock: Clock) -> None:
    script.lag = 10 * SECOND
    vm = made(call("POST", INSTANCES, machine()))
    assert call("GET", f"{INSTANCES}/{vm}")[0] == 403 and names(call("GET", INSTANCES)) == []
    assert len(list(crusoe.books.existing("vm"))) == 1
    clock.passes(10)
    assert names(call("GET", INSTANCES, ids=vm, states="STATE_CREATING")) == ["one"]
    assert names(call("GET", INSTANCES, names="one", states="STATE_RUNNING")) == []


def test_calls_come_too_fast(call: Client, script: Script, clock: Clock) -> None:
    script.rates["create*"] = Rate(2, within=20 * SECOND)
    statuses = [call("POST", INSTANCES, machine(f"n{number}"))[0] for number in range(3)]
    assert statuses == [200, 200, 429] and call.headers["retry-after"] == "11"
    assert call("GET", INSTANCES)[0] == 200, "other calls have their own rate"
    clock.passes(11)
    assert call("POST", INSTANCES, machine("n2"))[0] == 200


def test_a_create_fails_after_it_has_created(call: Client, crusoe: Crusoe, script: Script) -> None:
    script.faults.append(Fault("createInstance", Answer(500, {"code": "internal", "message": "x"}), when="after"))
    assert call("POST", INSTANCES, machine())[0] == 500
    assert names(call("GET", INSTANCES, names="one")) == ["one"]


def test_a_list_misses_what_exists_and_has_something_twice(call: Client, script: Script) -> None:
    for name in ("one", "two"):
        made(call("POST", INSTANCES, machine(name)))
    script.faults += [Fault("listInstances", misses("items")), Fault("listInstances", repeats("items"))]
    assert names(call("GET", INSTANCES)) == ["two"]
    assert names(call("GET", INSTANCES)) == ["one", "two", "one"]
    assert names(call("GET", INSTANCES)) == ["one", "two"]


def test_the_second_call_after_a_launch_is_throttled(call: Client, script: Script) -> None:
    script.faults.append(Fault("getInstance", Answer(429, {"code": "x", "message": "x"}), passing=1))
    vm = made(call("POST", INSTANCES, machine()))
    assert [call("GET", f"{INSTANCES}/{vm}")[0] for _ in range(3)] == [200, 429, 200]
