"""Gateways under `/api/v1`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chalicelib.domain.certificates import Certificate, certificate_id
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import HOUR
from chalicelib.store import nouns
from tests.api.rig import Rig
from tests.api.v1.bodies import GATEWAY
from tests.api.v1.rest import Client
from tests.api.v1.test_idempotency import Crash, Crashing
from tests.world.ports import accounts


@pytest.fixture
def api(tmp_path: Path) -> Client:
    return Client.of(Rig.at(tmp_path, backends=accounts(BackendFacts(name="aws", gateways=True))))


def test_a_gateway_is_created_read_and_deleted(api: Client) -> None:
    gateways = f"/api/v1/projects/{api.project}/gateways"
    reply = api.call("POST", gateways, {**GATEWAY, "name": "door", "domain": "*.example.com"})
    assert (reply.status, reply.headers["Location"]) == (201, f"{gateways}/door")
    door = api.ok("GET", f"{gateways}/door")
    assert (door["status"], door["default"], door["domain"]) == ("submitted", True, "example.com")
    assert (door["backend"], door["fleet"], door["certificates"], door["spec"]["region"]) == ("aws", None, [], "r")
    assert api.refused("POST", gateways, {**GATEWAY, "name": "door"})[:2] == (409, "already-exists")
    api.ok("POST", gateways, {**GATEWAY, "name": "second"}, status=201, idempotency_key="k")
    api.ok("POST", gateways, {**GATEWAY, "name": "second"}, status=201, idempotency_key="k")
    first = api.ok("GET", f"{gateways}?limit=1")
    rest = api.ok("GET", f"{gateways}?limit=1&cursor={first['next']}")
    assert {first["items"][0]["name"], rest["items"][0]["name"]} == {"door", "second"}
    assert api.call("DELETE", f"{gateways}/door").status == 202
    assert api.ok("GET", f"{gateways}/door")["status"] == "deleting"


def test_a_mistake_has_its_place(api: Client) -> None:
    status, _, problem = api.refused(
        "POST", f"/api/v1/projects/{api.project}/gateways", {**GATEWAY, "backend": "vultr"}
    )
    assert (status, [each["pointer"] for each in problem["errors"]]) == (422, ["/backend"])


def test_a_change_that_was_cut_off_is_made(api: Client) -> None:
    """Though what comes with it, another try for a certificate, is a commit of its own."""
    door = f"/api/v1/projects/{api.project}/gateways/door"
    made = api.ok("POST", door.removesuffix("/door"), {**GATEWAY, "name": "door", "domain": "*.a.example"}, status=201)
    now, name = api.plane.clock.now(), "app.a.example"
    failed = Certificate(
        id=certificate_id(made["id"], name),
        project_id="p",
        gateway_id=made["id"],
        gateway_name="door",
        name=name,
        used_at=now,
        created_at=now,
        last_processed_at=now,
        due_at=now + HOUR,
        message="its name leads nowhere",
    )
    api.plane.store.commit([nouns.put(failed)])
    change = {**GATEWAY, "name": "door", "domain": "*.b.example"}
    cut = replace(api, plane=replace(api.plane, store=Crashing(api.plane.store, 0, True)))
    with pytest.raises(Crash):
        cut.call("PUT", f"{door}/spec", change, idempotency_key="k")
    api.ok("PUT", f"{door}/spec", change, idempotency_key="k")
    assert api.ok("GET", door)["domain"] == "b.example"
