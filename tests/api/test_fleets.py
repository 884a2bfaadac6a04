"""Fleets and instances over the API: plan, create, change in place, list, delete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.events import Event
from chalicelib.domain.fleets import Fleet, FleetStatus
from chalicelib.domain.instances import Claim, Handle, Instance, InstanceStatus
from chalicelib.domain.instants import HOUR
from chalicelib.domain.offers import Offer
from chalicelib.domain.reasons import InstanceReason
from chalicelib.domain.tenants import ProjectRole
from chalicelib.store import nouns
from chalicelib.usecases.offer_lists import DEFAULT_OFFERS
from tests.api.rig import OFFERS, Rig, fleet, offer, submit, task
from tests.hosts.bad_host import KEY
from tests.world.ports import Books


def create(rig: Rig, spec: dict[str, Any], **more: Any) -> Any:
    return rig.ok("P/fleets/apply", {"plan": {"spec": spec, "current_resource": None}, "force": False, **more})


def fleet_of(rig: Rig, fleet_id: str) -> Fleet:
    found = nouns.find(rig.world.plane.store, Fleet, keys.fleet(fleet_id))
    assert found is not None
    return found


def add_instance(
    rig: Rig,
    made: Any,
    num: int = 0,
    *claims: Claim,
    status: InstanceStatus = InstanceStatus.idle,
    zone: str = "",
    offer: Offer = OFFERS[2],
) -> Instance:
    now = rig.world.clock.now() + num
    instance = Instance(
        id=rig.world.plane.random_id(),
        project_id=rig.project.id,
        fleet_id=made["id"],
        fleet_name=made["name"],
        num=num,
        name=f"{made['name']}-{num}",
        status=status,
        offer=offer,
        claims=claims,
        handles=(Handle(kind="vm", id=f"i-{num}", data={"zone": zone}),) if zone else (),
        created_at=now,
        last_processed_at=now,
    )
    rig.save(instance)
    return instance


def instance_of(rig: Rig, instance_id: str) -> Instance:
    found = nouns.find(rig.world.plane.store, Instance, keys.instance(instance_id))
    assert found is not None
    return found


def messages(rig: Rig) -> list[str]:
    page = rig.world.plane.store.query("main", f"events/{rig.project.id}")
    return [nouns.read(Event, record).message for record in page.records]


# --- plan and create ------------------------------------------------------------------------------------------------


def test_a_plan_shows_what_the_fleet_could_buy(rig: Rig) -> None:
    plan = rig.ok("P/fleets/get_plan", {"spec": fleet(resources={"gpu": {"name": ["A100"], "count": {"min": 1}}})})
    assert plan["action"] == "create" and plan["current_resource"] is None
    assert [offer["instance"]["name"] for offer in plan["offers"]] == ["a100"]
    assert (plan["total_offers"], plan["max_offer_price"]) == (1, 1.5)
    assert plan["spec"]["configuration"]["name"] == "pool"


def test_a_plan_without_offers_has_no_price(rig: Rig) -> None:
    plan = rig.ok("P/fleets/get_plan", {"spec": fleet(max_price=0.001)})
    assert (plan["offers"], plan["total_offers"], plan["max_offer_price"]) == ([], 0, None)


def test_a_creation_is_one_commit_with_all_its_parts(rig: Rig) -> None:
    rig.world.take_woken()
    made = create(rig, fleet(nodes={"min": 1, "target": 2, "max": 3}))
    assert (made["status"], made["instances"], made["spec"]["profile"]) == ("active", [], {"name": "default"})
    stored = fleet_of(rig, made["id"])
    assert (stored.to_create, stored.due_at) == (2, rig.world.clock.now())
    assert f"fleet/{made['id']}" in rig.world.take_woken() and "created" in messages(rig)
    assert rig.ok("P/fleets/get", {"name": "pool"}) == rig.ok("P/fleets/get", {"id": made["id"]}) == made
    assert rig.ok("P/fleets/list") == [made] == rig.ok("/api/fleets/list", {})


def test_the_wire_may_leave_out_the_target(rig: Rig) -> None:
    made = create(rig, fleet(nodes={"min": 2, "max": 3}))
    assert fleet_of(rig, made["id"]).to_create == 2 and made["spec"]["configuration"]["nodes"] == {"min": 2, "max": 3}


def test_a_fleet_without_a_name_gets_one(rig: Rig) -> None:
    made, other = create(rig, fleet(None)), create(rig, fleet(None))
    assert made["name"] != other["name"] and made["spec"]["configuration"]["name"] == made["name"]


def test_a_change_begins_anew_what_had_come_to_nothing(rig: Rig) -> None:
    made = create(rig, fleet(nodes={"min": 1, "target": 1, "max": 2}))
    stuck = {"failed": ("k",), "consolidation_attempt": 3, "paused_until": rig.world.at + HOUR, "to_create": 0}
    rig.save(fleet_of(rig, made["id"]).with_(**stuck))
    create(rig, fleet(nodes={"min": 1, "target": 1, "max": 3}))
    found = fleet_of(rig, made["id"])
    assert (found.failed, found.consolidation_attempt, found.paused_until, found.to_create) == ((), 0, None, 1)
    create(rig, fleet(nodes={"min": 0, "target": 0, "max": 3}))
    assert fleet_of(rig, made["id"]).to_create == 0


def test_one_that_is_too_large_for_a_record_is_refused(rig: Rig) -> None:
    tags = {f"tag-{n:05}": "x" * 200 for n in range(1_250)}
    assert "the limit is 250 KB" in rig.refused("P/fleets/apply", {"plan": {"spec": fleet(tags=tags)}, "force": False})


def test_a_bad_name_is_refused(rig: Rig) -> None:
    assert "`bad-name`" in rig.refused("P/fleets/get_plan", {"spec": fleet("Bad Name")})


# --- change in place ------------------------------------------------------------------------------------------------


def test_the_same_fleet_again_changes_nothing(rig: Rig) -> None:
    made = create(rig, fleet())
    plan = rig.ok("P/fleets/get_plan", {"spec": fleet()})
    assert plan["action"] == "update" and plan["current_resource"] == made
    assert plan["current_resource"]["spec"] == plan["effective_spec"]
    assert create(rig, fleet()) == made and fleet_of(rig, made["id"]).spec_num == 0


def test_a_default_that_is_said_aloud_is_no_change(rig: Rig) -> None:
    made = create(rig, fleet())
    assert create(rig, fleet(placement="any", max_price=None))["id"] == made["id"]
    assert fleet_of(rig, made["id"]).spec_num == 0


def test_nodes_and_prices_change_in_place(rig: Rig) -> None:
    made = create(rig, fleet())
    add_instance(rig, made)
    rig.save(fleet_of(rig, made["id"]).with_(consolidation_attempt=5, failed=("i1",)))
    wider = fleet(nodes={"min": 1, "target": 3, "max": 9}, max_price=2.5)
    assert rig.ok("P/fleets/get_plan", {"spec": wider})["action"] == "update"
    changed = create(rig, wider)
    stored = fleet_of(rig, made["id"])
    assert changed["id"] == made["id"] and changed["spec"]["configuration"]["max_price"] == 2.5
    assert (stored.spec_num, stored.to_create, stored.consolidation_attempt, stored.failed) == (1, 2, 0, ())
    assert "changed: max price, nodes" in messages(rig)


@pytest.mark.parametrize("field", [{"blocks": 4}, {"idle_duration": 60}])
def test_other_fields_ask_for_a_new_fleet(rig: Rig, field: dict[str, Any]) -> None:
    create(rig, fleet())
    assert rig.ok("P/fleets/get_plan", {"spec": fleet(**field)})["action"] == "create"
    message = rig.refused("P/fleets/apply", {"plan": {"spec": fleet(**field)}, "force": True})
    assert next(iter(field)) in message and "dstack fleet delete pool" in message


def test_a_plan_that_was_overtaken_is_refused_unless_forced(rig: Rig) -> None:
    seen = create(rig, fleet())
    create(rig, fleet(max_price=1.0))
    stale = {"plan": {"spec": fleet(max_price=3.0), "current_resource": seen}, "force": False}
    assert "was changed since this plan was made" in rig.refused("P/fleets/apply", stale)
    assert rig.ok("P/fleets/apply", {**stale, "force": True})["spec"]["configuration"]["max_price"] == 3.0


def test_hosts_that_are_added_are_in_the_answer(rig: Rig) -> None:
    """Clients watch the instances that an apply answers with."""
    ssh: dict[str, Any] = {"user": "u", "ssh_key": {"public": "", "private": KEY}}
    for hosts in (["10.0.0.1"], ["10.0.0.1", "10.0.0.2"]):
        spec = {"configuration": {"type": "fleet", "name": "lab", "ssh_config": {**ssh, "hosts": hosts}}}
        made = rig.ok("P/fleets/apply", {"plan": {"spec": spec}, "force": True})
        assert [instance["hostname"] for instance in made["instances"]] == hosts


def test_a_plan_of_a_fleet_that_is_gone_is_refused(rig: Rig) -> None:
    seen = create(rig, fleet())
    rig.save(fleet_of(rig, seen["id"]).with_(status=FleetStatus.terminating))
    rig.save(fleet_of(rig, seen["id"]).with_(status=FleetStatus.terminated, deleted=True))
    stale = {"plan": {"spec": fleet(max_price=3.0), "current_resource": seen}, "force": False}
    assert "was deleted since this plan was made" in rig.refused("P/fleets/apply", stale)


# --- delete ---------------------------------------------------------------------------------------------------------


def claim(run_id: str) -> Claim:
    return Claim(job_id="j", run_id=run_id, blocks=(0,))


def test_a_fleet_in_use_is_not_deleted_and_the_run_is_named(rig: Rig) -> None:
    made, run = create(rig, fleet()), submit(rig, task())
    instance = add_instance(rig, made, 0, claim(run["id"]), status=InstanceStatus.busy)
    for path, body in (
        ("P/fleets/delete", {"names": ["pool"]}),
        ("P/fleets/delete_instances", {"name": "pool", "instance_nums": [0]}),
    ):
        message = rig.refused(path, body)
        assert "in use by the run hello" in message and "dstack stop hello" in message
    assert fleet_of(rig, made["id"]).status is FleetStatus.active
    assert instance_of(rig, instance.id).status is InstanceStatus.busy


def test_of_several_instances_none_is_deleted_if_one_is_in_use(rig: Rig) -> None:
    made, run = create(rig, fleet()), submit(rig, task())
    free, _ = add_instance(rig, made, 0), add_instance(rig, made, 1, claim(run["id"]), status=InstanceStatus.busy)
    body = {"name": "pool", "instance_nums": [0, 1]}
    assert "The instance pool-1 is in use" in rig.refused("P/fleets/delete_instances", body)
    assert instance_of(rig, free.id).status is InstanceStatus.idle


@pytest.mark.parametrize(("count", "expected"), [(5, "by the runs r0, r1, r2, r3, r4."), (7, "r3, r4 and 2 more.")])
def test_the_first_runs_that_use_a_fleet_are_named(rig: Rig, count: int, expected: str) -> None:
    made = create(rig, fleet(nodes={"min": 0, "target": 0, "max": 9}))
    for number in range(count):
        run = submit(rig, task(f"r{number}"))
        add_instance(rig, made, number, claim(run["id"]), status=InstanceStatus.busy)
    message = rig.refused("P/fleets/delete", {"names": ["pool"]})
    assert expected in message and "dstack stop r0" in message


@pytest.mark.parametrize("force", [False, True])
def test_only_by_force_the_hosts_of_a_deleted_fleet_are_forgotten_at_once(rig: Rig, force: bool) -> None:
    ssh = {"user": "u", "ssh_key": {"public": "", "private": KEY}, "hosts": ["10.0.0.1"]}
    spec = {"configuration": {"type": "fleet", "name": "lab", "ssh_config": ssh}}
    made = rig.ok("P/fleets/apply", {"plan": {"spec": spec}, "force": True})
    rig.ok("P/fleets/delete", {"names": ["lab"], "force": force})
    host = instance_of(rig, made["instances"][0]["id"])
    assert (host.status is InstanceStatus.terminating, host.forgotten) == (force, force)


def test_a_deleted_fleet_ends_and_then_is_not_found(rig: Rig) -> None:
    made = create(rig, fleet())
    rig.world.take_woken()
    assert rig.ok("P/fleets/delete", {"names": ["pool"]}) is None
    ending = fleet_of(rig, made["id"])
    assert (ending.status, ending.due_at) == (FleetStatus.terminating, rig.world.clock.now())
    assert rig.world.take_woken() == {f"fleet/{made['id']}"}
    assert rig.ok("P/fleets/get", {"name": "pool"})["status"] == "terminating"
    rig.ok("P/fleets/delete", {"names": ["pool"]})  # again: harmless
    rig.save(ending.with_(status=FleetStatus.terminated, deleted=True, due_at=None))
    for body in ({"name": "pool"}, {"id": made["id"]}):
        assert rig.call("/api/project/main/fleets/get", body).json["detail"][0]["code"] == "resource_not_exists"
    assert rig.ok("P/fleets/list") == [] and create(rig, fleet())["id"] != made["id"]


def test_a_fleet_that_is_ending_takes_no_changes(rig: Rig) -> None:
    create(rig, fleet())
    rig.ok("P/fleets/delete", {"names": ["pool"]})
    message = rig.refused("P/fleets/apply", {"plan": {"spec": fleet()}, "force": True})
    assert "There is a fleet pool already, and it is terminating." in message and "Wait until it is gone." in message


def test_single_instances_are_ended_by_number(rig: Rig) -> None:
    made = create(rig, fleet())
    first, second = add_instance(rig, made, 0), add_instance(rig, made, 1)
    rig.world.take_woken()
    assert rig.ok("P/fleets/delete_instances", {"name": "pool", "instance_nums": [1]}) is None
    ended = instance_of(rig, second.id)
    assert (ended.status, ended.reason) == (InstanceStatus.terminating, InstanceReason.terminated_by_user)
    assert instance_of(rig, first.id).status is InstanceStatus.idle
    assert rig.world.take_woken() == {f"instance/{second.id}"}


def test_an_unknown_number_ends_nothing(rig: Rig) -> None:
    made = create(rig, fleet())
    first = add_instance(rig, made, 0)
    assert "no instance 7" in rig.refused("P/fleets/delete_instances", {"name": "pool", "instance_nums": [0, 7]})
    assert instance_of(rig, first.id).status is InstanceStatus.idle


# --- lists ----------------------------------------------------------------------------------------------------------


def test_fleets_page_over_projects_the_caller_belongs_to(rig: Rig) -> None:
    other = rig.another_project("other")
    ann = rig.user("ann", ProjectRole.user, other)
    for number in range(7):
        rig.world.clock.pass_(number % 2)
        create(rig, fleet(f"pool-{number}"))
    rig.ok("/api/project/other/fleets/apply", {"plan": {"spec": fleet()}, "force": False}, token=ann)
    seen: list[Any] = []
    while page := rig.ok(
        "/api/fleets/list",
        {"limit": 3, **({"prev_created_at": seen[-1]["created_at"], "prev_id": seen[-1]["id"]} if seen else {})},
    ):
        seen += page
    assert len(seen) == len({row["id"] for row in seen}) == 8
    assert [row["project_name"] for row in rig.ok("/api/fleets/list", {}, token=ann)] == ["other"]


def test_one_projects_fleets_come_whole_or_in_pages(rig: Rig) -> None:
    for number in range(5):
        rig.world.clock.pass_(number % 2)
        create(rig, fleet(f"pool-{number}"))
    listed = rig.ok("P/fleets/list")
    assert [row["created_at"] for row in listed] == sorted(row["created_at"] for row in listed) and len(listed) == 5
    seen: list[Any] = []
    while page := rig.ok(
        "P/fleets/list",
        {"limit": 2, **({"prev_created_at": seen[-1]["created_at"], "prev_id": seen[-1]["id"]} if seen else {})},
    ):
        assert len(page) <= 2
        seen += page
    assert seen == listed
    assert "limit" in rig.refused("P/fleets/list", {"limit": 0})


def test_instances_are_listed_filtered_paged_and_got(rig: Rig) -> None:
    made, more = create(rig, fleet()), create(rig, fleet("more"))
    mine = [add_instance(rig, made, num) for num in range(5)]
    add_instance(rig, more)
    ids = [instance.id for instance in mine]
    listed = rig.ok("/api/instances/list", {"fleet_ids": [made["id"]], "ascending": True})
    assert [row["id"] for row in listed] == ids
    first = rig.ok("/api/instances/list", {"fleet_ids": [made["id"]], "ascending": True, "limit": 2})
    last = {"prev_created_at": first[-1]["created"], "prev_id": first[-1]["id"]}
    rest = rig.ok("/api/instances/list", {"fleet_ids": [made["id"]], "ascending": True, **last})
    assert [row["id"] for row in first + rest] == ids
    assert (
        len(rig.ok("/api/instances/list", {})) == 6 and rig.ok("/api/instances/list", {"project_names": ["nope"]}) == []
    )
    both = rig.ok("/api/instances/list", {"ascending": True})
    assert [row["created"] for row in both] == sorted(row["created"] for row in both)
    assert rig.ok("/api/instances/list", {}) == both[::-1]
    got = rig.ok("P/instances/get", {"id": ids[0]})
    assert (got["name"], got["backend"], got["price"], got["fleet_name"]) == ("pool-0", "vultr", 1.5, "pool")
    assert got["availability_zone"] is None
    assert "no instance" in rig.refused("P/instances/get", {"id": rig.project.id})


def test_an_instance_shows_its_zone(rig: Rig) -> None:
    machine = add_instance(rig, create(rig, fleet()), zone="fra-a")
    assert rig.ok("P/instances/get", {"id": machine.id})["availability_zone"] == "fra-a"


# --- GPUs -----------------------------------------------------------------------------------------------------------


def test_gpus_are_grouped_as_asked(rig: Rig) -> None:
    groups = rig.ok("P/gpus/list", {"run_spec": task()})["gpus"]
    assert [(g["name"], g["price"], g["count"], g["backends"]) for g in groups] == [
        ("A100", {"min": 1.5, "max": 1.5}, {"min": 1, "max": 1}, ["vultr"]),
        ("H100", {"min": 2.5, "max": 2.5}, {"min": 8, "max": 8}, ["vultr"]),
    ]
    (h100, a100) = rig.ok("P/gpus/list", {"run_spec": task(), "group_by": ["backend", "region"], "reverse": True})[
        "gpus"
    ]
    assert (h100["backend"], h100["region"], a100["region"]) == ("vultr", "ewr", "fra") and "backends" not in h100
    assert h100["offer_price"] == {"min": 20.0, "max": 20.0}
    assert "backend" in rig.refused("P/gpus/list", {"run_spec": task(), "group_by": ["region"]})


def test_all_gpus_are_listed_however_many_are_on_offer(tmp_path: Path) -> None:
    many = [offer(f"m{number}", 1.0 + number, gpus=1, gpu=f"GPU{number}") for number in range(DEFAULT_OFFERS + 10)]
    rig = Rig.at(tmp_path, catalog=Books(many))
    assert len(rig.ok("P/gpus/list", {"run_spec": task()})["gpus"]) == len(many)


def a_shared_machine(rig: Rig) -> dict[str, Any]:
    """Eight H100s in eight blocks, and a task that wants one of them."""
    made = create(rig, fleet(blocks=8))
    offer = OFFERS[3].with_(blocks=8, total_blocks=8)
    rig.save(instance_of(rig, add_instance(rig, made).id).with_(offer=offer, total_blocks=8))
    return task(resources={"gpu": "H100:1..8", "cpu": "1..", "memory": "1GB..", "disk": "1GB.."})


def test_whole_machines_are_grouped_when_full_offers_are_asked_for(rig: Rig) -> None:
    spec = a_shared_machine(rig)
    for full, counts in ((False, {"min": 1, "max": 8}), (True, {"min": 8, "max": 8})):
        (group,) = rig.ok("P/gpus/list", {"run_spec": spec, "full_offers": full})["gpus"]
        assert (group["name"], group["count"]) == ("H100", counts)
        assert group["price"] == {"min": 2.5, "max": 2.5}  # of one GPU, however many come together
    assert "unallocated" in rig.refused("P/gpus/list", {"run_spec": spec, "unallocated_resources": True})


def test_offers_show_whole_machines_when_asked_and_plans_never_do(rig: Rig) -> None:
    spec = a_shared_machine(rig)
    for full, blocks, price in ((False, 1, 2.5), (True, 8, 20.0)):
        body = {"run_spec": spec, "for_offers_only": True, "full_offers": full}
        there = rig.ok("P/runs/get_plan", body)["job_plans"][0]["offers"][0]
        assert (there["availability"], there["blocks"], there["total_blocks"]) == ("idle", blocks, 8)
        assert (there["price"], len(there["instance"]["resources"]["gpus"])) == (price, blocks)
    assert "share" in rig.refused("P/runs/get_plan", {"run_spec": spec, "full_offers": True})


@pytest.mark.parametrize("call", ["get_plan", "apply"])
def test_a_reservation_is_refused_where_no_backend_has_any(rig: Rig, call: str) -> None:
    spec = fleet("cloud", nodes=1, reservation="cr-1")
    body = {"spec": spec} if call == "get_plan" else {"plan": {"spec": spec, "current_resource": None}, "force": False}
    reply = rig.call(f"/api/project/main/fleets/{call}", body)
    assert reply.status == 400
    assert "none of this project's backends can launch machines into reservations" in reply.json["detail"][0]["msg"]
