"""Costs over time have volumes in them: of who made them, while they were there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain.costs import VOLUMES
from chalicelib.domain.instants import DAY, HOUR, MINUTE, MONTH, day_of
from chalicelib.domain.volumes import VolumeStatus
from chalicelib.engine.cost_days import close_days
from tests.api.rig import Rig
from tests.api.test_volumes import CLOUDS, activate, create, stored
from tests.api.v1.rest import Client
from tests.world.ports import accounts

PRICE = 8.0 * HOUR / MONTH  # dollars an hour


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig.at(tmp_path, backends=accounts(*CLOUDS))


def costs(rig: Rig, query: str = "") -> Any:
    return Client.of(rig).ok("GET", f"/api/v1/projects/{rig.project.name}/costs?{query}")


def test_a_volume_costs_who_made_it_while_it_is_there(rig: Rig) -> None:
    rig.world.at = day_of(rig.world.at) + 6 * HOUR
    made = create(rig)
    activate(rig, made)
    rig.world.at += 90 * MINUTE
    (item,) = costs(rig, "step=hour")["items"]
    assert item["name"] == "admin" and item["idle_usd"] == 0 and item["gpu_hours"] == 0
    assert [step["usd"] for step in item["steps"]] == pytest.approx([PRICE, PRICE / 2], abs=1e-4)
    (item,) = costs(rig, "by=fleet")["items"]
    assert item["name"] == VOLUMES
    rig.save(stored(rig, made).with_(status=VolumeStatus.deleted, deleted_at=rig.world.at))
    rig.world.at += DAY
    found = costs(rig)
    assert found["usd"] == pytest.approx(1.5 * PRICE, abs=1e-4), "it is gone, and what it cost stays"
    assert close_days(rig.world.plane.read, rig.world.clock, rig.project.id)
    assert costs(rig)["items"] == found["items"], "the day that is over is counted with it"


def test_volumes_without_a_price_are_said_to_be_missing(rig: Rig) -> None:
    assert costs(rig)["unpriced_volumes"] == 0
    activate(rig, create(rig, "dear"), price=None)
    create(rig, "young")  # isn't there yet
    rig.world.at += HOUR
    found = costs(rig)
    assert (found["unpriced_volumes"], found["items"]) == (1, [])
