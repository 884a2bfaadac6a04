"""Gateways under `/api/v1`."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.domain.facts import BackendFacts
from tests.api.rig import Rig
from tests.api.v1.bodies import GATEWAY
from tests.api.v1.rest import Client
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
