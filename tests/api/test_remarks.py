"""A plan's remarks beside its offers, as clients get them."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.offers import Disk
from tests.api.rig import Rig, fleet, task
from tests.api.test_fleets import add_instance, create
from tests.world import nouns as b

SERVICE = {"run_name": "web", "configuration": {"type": "service", "port": 80, "commands": ["x"], "replicas": 2}}
POLICY = {"min_gpu_utilization": 10, "time_window": "10m"}


def plan_text(rig: Rig, spec: dict[str, Any]) -> str:
    return str(rig.ok("P/runs/get_plan", {"run_spec": spec}))


@pytest.fixture
def offers(rig: Rig) -> Rig:
    create(rig, fleet())
    return rig


def test_a_service_of_several_replicas_is_proposed_retry(offers: Rig) -> None:
    text = "`retry: true`"
    assert text in plan_text(offers, SERVICE)
    assert text not in plan_text(
        offers, {"configuration": {**SERVICE["configuration"], "retry": True}, "run_name": "web"}
    )


def test_a_policy_that_has_nothing_to_judge_by_is_remarked(offers: Rig) -> None:
    assert "`utilization_policy` judges GPUs only" in plan_text(offers, task(utilization_policy=POLICY))
    assert "utilization_policy` judges" not in plan_text(offers, task())


def test_a_host_with_a_smaller_disk_than_the_default_has_the_rule_beside_it(rig: Rig) -> None:
    has = b.resources(disk=Disk(size_mib=73 * 1024))
    add_instance(rig, create(rig, fleet()), 1, offer=b.offer("host", 0.0, backend="remote", region="", has=has))
    assert "`disk: 100GB..`, the default, is asked only" in plan_text(rig, task(resources={}))
