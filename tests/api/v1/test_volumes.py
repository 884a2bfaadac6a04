"""Volumes under `/api/v1`."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.domain.facts import BackendFacts
from tests.api.rig import Rig
from tests.api.v1.rest import Client
from tests.world.ports import accounts

VOLUME = {"type": "volume", "backend": "aws", "region": "r1", "size": "100GB"}


@pytest.fixture
def api(tmp_path: Path) -> Client:
    return Client.of(Rig.at(tmp_path, backends=accounts(BackendFacts(name="aws", volumes=True))))


@pytest.fixture
def volumes(api: Client) -> str:
    return f"/api/v1/projects/{api.project}/volumes"


def test_a_volume_is_created_read_and_deleted(api: Client, volumes: str) -> None:
    reply = api.call("POST", volumes, {**VOLUME, "name": "data"})
    assert (reply.status, reply.headers["Location"]) == (201, f"{volumes}/data")
    volume = api.ok("GET", f"{volumes}/data")
    assert (volume["status"], volume["size_gb"], volume["external"], volume["attachments"]) == (
        "submitted",
        100,
        False,
        [],
    )
    assert [each["name"] for each in api.ok("GET", "/api/v1/volumes?active=true")["items"]] == ["data"]
    assert api.call("DELETE", f"{volumes}/data").status == 202
    assert api.ok("GET", f"{volumes}/data")["status"] == "deleting"


def test_a_name_is_taken_once(api: Client, volumes: str) -> None:
    api.ok("POST", volumes, {**VOLUME, "name": "data"}, status=201)
    for url in (volumes, f"{volumes}?dry_run=true"):
        assert api.refused("POST", url, {**VOLUME, "name": "data"})[:2] == (409, "already-exists")


def test_a_repeated_request_makes_one_volume(api: Client, volumes: str) -> None:
    first, again = (api.call("POST", volumes, VOLUME, idempotency_key="k") for _ in range(2))
    assert (first.status, first.body) == (again.status, again.body) and first.status == 201
    assert len(api.ok("GET", volumes)["items"]) == 1


def test_a_dry_run_checks_and_changes_nothing(api: Client, volumes: str) -> None:
    api.ok("POST", volumes, {**VOLUME, "name": "data"}, status=201)
    before = api.plane.store.scan(limit=1000)
    assert api.ok("POST", f"{volumes}?dry_run=true", VOLUME)["action"] == "create"
    assert api.ok("DELETE", f"{volumes}/data?dry_run=true")["action"] == "delete"
    assert api.refused("POST", f"{volumes}?dry_run=true", {**VOLUME, "sise": 1})[0] == 422
    assert api.refused("DELETE", f"{volumes}/none?dry_run=true")[0] == 404
    assert api.plane.store.scan(limit=1000) == before
