"""What users may do to machines that were bought together."""

from __future__ import annotations

import pytest

from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.offers import OfferTerms
from chalicelib.errors import Refused
from chalicelib.usecases.machines import fleet_plans, fleets
from chalicelib.usecases.operator.first_start import first_start
from chalicelib.usecases.people import users
from tests.world import nouns as b
from tests.world.engine import Engine


def test_one_of_them_isnt_deleted_while_a_job_uses_another() -> None:
    place = Engine.in_memory()
    _, project = first_start(place.plane)
    admin = users.named_user(place.store, "admin")
    raw = {"configuration": {"type": "fleet", "name": "pool", "placement": "cluster", "nodes": "0..8"}}
    fleet = fleet_plans.apply_plan(place.plane, admin, project, raw, None).fleet
    offer = b.offer("x2", terms=OfferTerms(bundle=2))
    one, two = (b.machine(num, fleet, offer=offer, bundle=0) for num in range(2))
    run = b.run("train", project_id=project.id)
    used = b.holding(two, b.job(run))
    place.save(place.again(fleet).with_(next_instance_num=2), run, one, used)
    with pytest.raises(Refused, match="pool-0 ends with the others of its purchase, which are in use by the run train"):
        fleets.delete_instances(place.plane, admin, project, "pool", [0])
    free: Instance = place.again(used)
    place.save(free.with_(claims=(), status=InstanceStatus.idle))
    fleets.delete_instances(place.plane, admin, project, "pool", [0])
    assert place.again(one).status is InstanceStatus.terminating
    assert set(place.woken) >= {f"instance/{one.id}", f"instance/{two.id}"}


def test_another_machine_with_the_number_of_a_missing_one_may_be_used() -> None:
    place = Engine.in_memory()
    _, project = first_start(place.plane)
    admin = users.named_user(place.store, "admin")
    raw = {"configuration": {"type": "fleet", "name": "pool", "nodes": "0..8"}}
    fleet = fleet_plans.apply_plan(place.plane, admin, project, raw, None).fleet
    one = b.machine(0, fleet, offer=b.offer("x2", terms=OfferTerms(bundle=2)), bundle=0)
    run = b.run("train", project_id=project.id)
    other = b.holding(b.machine(1, fleet), b.job(run))
    place.save(place.again(fleet).with_(next_instance_num=2), run, one, other)
    fleets.delete_instances(place.plane, admin, project, "pool", [0])
    assert place.again(one).status is InstanceStatus.terminating
    assert place.again(other).status is other.status
