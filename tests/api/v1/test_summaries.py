"""What lists under `/api/v1` show of each thing."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.api.wire.v1.runs import asked_gpus
from chalicelib.domain import keys
from chalicelib.domain.fleets import FleetBody
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Claim, InstanceStatus
from chalicelib.domain.instants import HOUR
from chalicelib.store import nouns
from tests.api.rig import OFFERS, Rig
from tests.api.test_runs import finish, job_of, placed
from tests.api.v1.rest import TASK, Client
from tests.world import nouns as b


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        (None, None),
        (0, None),
        (2, "2"),
        ("H100:8", "H100:8"),
        ({"name": ["H100", "H200"], "count": {"min": 1, "max": 8}}, "H100,H200:1..8"),
        ({"name": "A100", "memory": {"min": "40GB"}, "count": 2}, "A100:40GB..:2"),
        ({"count": {"min": 0}}, None),
    ],
)
def test_the_gpus_of_a_configuration_in_the_short_form(written: Any, asked: str | None) -> None:
    assert asked_gpus(written) == asked


def test_a_run_in_a_list_shows_its_place_and_what_it_costs(rig: Rig) -> None:
    api = Client.of(rig)
    made = api.ok("POST", api.runs, {**TASK, "name": "one", "resources": {"gpu": "A100:1"}}, status=201)
    (waits,) = api.ok("GET", api.runs)["items"]
    assert (waits["type"], waits["places"], waits["gpus"], waits["price_per_hour_usd"]) == ("task", [], [], 0.0)
    assert "A100" in waits["asks_for"] and waits["jobs_count"] == 1 and waits["replicas"] is None
    rig.save(placed(job_of(rig, made["id"]), rig.world.clock.now()))
    rig.world.clock.at += HOUR
    (runs,) = api.ok("GET", api.runs)["items"]
    assert runs["places"] == [{"backend": "vultr", "region": "fra", "type": "a100", "spot": False, "jobs": 1}]
    assert [(gpu["name"], gpu["count"]) for gpu in runs["gpus"]] == [("A100", 1)]
    assert (runs["price_per_hour_usd"], runs["cost_usd"]) == (1.5, 1.5)
    finish(rig, made["id"])
    rig.world.clock.at += HOUR
    (ended,) = api.ok("GET", api.runs)["items"]
    assert (ended["price_per_hour_usd"], ended["cost_usd"], ended["places"]) == (0.0, 1.5, runs["places"])


def test_an_instance_shows_which_blocks_its_jobs_have_and_its_fleet_how_many_gpus_are_busy(rig: Rig) -> None:
    api = Client.of(rig)
    pool = b.fleet("pool").with_(project_id=rig.project.id)
    body = FleetBody(fleet_id=pool.id, spec='{"configuration": {"type": "fleet"}}')
    claim = Claim(job_id=derive("j", "job", 0), run_id=derive("r", "run", 0), blocks=(0, 2))
    machine = b.machine(0, pool, offer=OFFERS[3], total_blocks=4, claims=(claim,), status=InstanceStatus.busy)
    machine = machine.with_(project_id=rig.project.id)
    rig.save(pool, body, machine)
    rig.world.plane.store.commit([nouns.pointer(keys.fleet_name(rig.project.id, "pool"), pool.id)])
    (shown,) = api.ok("GET", f"/api/v1/projects/{api.project}/instances")["items"]
    assert [each["blocks"] for each in shown["claims"]] == [[0, 2]] and shown["busy_blocks"] == 2
    (fleet,) = api.ok("GET", f"/api/v1/projects/{api.project}/fleets")["items"]
    assert (fleet["gpus"], fleet["busy_gpus"], fleet["price_per_hour_usd"]) == (8, 4.0, 20.0)
