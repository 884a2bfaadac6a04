"""Hosts of SSH fleets: which a fleet has, how one is added and removed, and what each setting of theirs does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from chalicelib.domain.fleets import Fleet, FleetStatus
from chalicelib.domain.instances import Instance, InstanceStatus, OnPrem
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.workflows import Workflow, WorkflowStatus
from chalicelib.hosts.connection import HostLogin
from chalicelib.hosts.logins import login
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.machines.fleet import CHECK_CLEARED_EVERY, decide_fleet
from chalicelib.planning.machines.host_networks import internal_address
from chalicelib.planning.machines.hosts import ADD_HOST, MAX_IN_FLIGHT, NEXT_BATCH, REMOVE_HOST, hosts_of, workflow_of
from chalicelib.planning.machines.instance import decide_instance
from chalicelib.planning.machines.joining import should_leave
from chalicelib.planning.machines.snapshots import FleetSnapshot, InstanceSnapshot
from chalicelib.planning.matching.offer_book import OfferBook
from tests.world import nouns as b
from tests.world.gateways import gateway, seated
from tests.world.nouns import lint

KEY = {"public": "", "private": "the fleet's key"}
SSH: dict[str, Any] = {"user": "ubuntu", "identity_file": "~/k", "ssh_key": KEY, "hosts": ["h1", "h2"]}


def spec(**changes: Any) -> FleetSpec:
    return b.fleet_spec(ssh_config={**SSH, **changes})


# --- which hosts a fleet has ------------------------------------------------------------------------------------------


def decided(fleet: Fleet, of: FleetSpec, *instances: Instance) -> Plan:
    snapshot = FleetSnapshot(b.NOW, FleetView(fleet, of, instances), OfferBook(()), {})
    plan = decide_fleet(snapshot)
    assert lint(snapshot, plan) == []
    return plan


def saved(plan: Plan, kind: type) -> list[Any]:
    return [noun for step in plan.steps for noun in step.saves if isinstance(noun, kind)]


def at(key: str, num: int = 0, status: str = "idle", **fields: Any) -> Instance:
    hostname, _, port = key.partition(":")
    host = OnPrem(hostname=hostname, port=int(port or 22), user="ubuntu")
    return b.host(num, b.fleet("lab"), status=InstanceStatus(status), host=host, **fields)


def test_what_an_apply_requested_is_added() -> None:
    plan = decided(b.fleet("lab", to_add=("h1:22", "h2:22"), due_at=b.NOW, last_processed_at=b.NOW - b.DAY), spec())
    added = saved(plan, Instance)
    assert [(i.num, i.name, i.status, i.host.key, i.offer.backend) for i in added] == [
        (0, "lab-0", "pending", "h1:22", "remote"),
        (1, "lab-1", "pending", "h2:22", "remote"),
    ]
    fleet = saved(plan, Fleet)[-1]
    assert (fleet.to_add, fleet.last_processed_at) == ((), b.NOW)
    assert [event.detail for step in plan.steps for event in step.events] == ["h1:22", "h2:22"]
    assert {unit for step in plan.steps for unit in step.wake} >= {f"instance/{i.id}" for i in added}


def test_a_large_fleet_is_added_in_batches() -> None:
    keys = tuple(f"h{number}:22" for number in range(MAX_IN_FLIGHT + 5))
    of = spec(hosts=[key.partition(":")[0] for key in keys])
    there = at("h0", status="terminating")  # it takes no place in the batch
    plan = decided(b.fleet("lab", to_add=keys, next_instance_num=1, due_at=b.NOW), of, there)
    assert len(saved(plan, Instance)) == MAX_IN_FLIGHT
    fleet = saved(plan, Fleet)[-1]
    assert fleet.to_add == ("h0:22", *keys[-4:])
    assert plan.next_wake == fleet.due_at == b.NOW + NEXT_BATCH
    plan = decided(fleet.with_(due_at=b.NOW), of, *(each for each in saved(plan, Instance)), there)
    assert [each.host.key for each in saved(plan, Instance)] == list(keys[-4:])
    assert saved(plan, Fleet)[-1].due_at == b.NOW + CHECK_CLEARED_EVERY
    batch = decided(b.fleet("lab", to_add=keys[:MAX_IN_FLIGHT], due_at=b.NOW), of)
    assert len(saved(batch, Instance)) == MAX_IN_FLIGHT and saved(batch, Fleet)[-1].due_at is None


def test_a_host_that_failed_isnt_added_again_by_itself() -> None:
    assert saved(decided(b.fleet("lab"), spec()), Instance) == []


def test_a_host_that_is_still_being_cleared_waits() -> None:
    fleet = b.fleet("lab", to_add=("h1:22",))
    waits = decided(fleet, spec(), at("h1", status="terminating"))
    assert saved(waits, Instance) == []
    assert waits.next_wake == b.NOW + CHECK_CLEARED_EVERY, "whatever becomes of the hint that it is gone"
    (again,) = saved(decided(saved(waits, Fleet)[-1], spec()), Instance)
    assert again.host.key == "h1:22"


def test_a_host_that_was_requested_and_taken_out_again_is_forgotten() -> None:
    plan = decided(b.fleet("lab", to_add=("h9:22",)), spec())
    assert saved(plan, Instance) == [] and saved(plan, Fleet)[-1].to_add == ()


def test_a_host_that_the_spec_no_longer_names_ends() -> None:
    plan = decided(b.fleet("lab"), spec(hosts=["h1"]), at("h1"), at("h2", 1))
    (ended,) = [i for i in saved(plan, Instance) if i.status == InstanceStatus.terminating]
    assert (ended.num, ended.reason) == (1, "terminated_by_user")


def test_one_that_joined_by_itself_stays_whatever_the_spec_names() -> None:
    came = b.host(1, b.fleet("lab"), host=OnPrem(hostname="h9", port=0, joined=True))
    assert saved(decided(b.fleet("lab"), spec(hosts=["h1"]), at("h1"), came), Instance) == []
    assert saved(decided_host(came, spec(hosts=["h1"]), reported=True), Instance)[-1].status == InstanceStatus.idle


def test_one_that_works_ends_after_its_job() -> None:
    busy = b.holding(at("h2", 1, "idle"), b.job(b.run()))
    assert saved(decided(b.fleet("lab"), spec(hosts=["h1"]), busy), Instance) == []
    free = busy.with_(claims=(), status=InstanceStatus.idle)
    done = decided_host(free, spec(hosts=["h1"]), reported=True)
    assert saved(done, Instance)[-1].status == InstanceStatus.terminating


def test_a_changed_login_is_used_from_now_on() -> None:
    fleet = b.fleet("lab", spec_num=3)
    plan = decided(fleet, spec(), at("h1"), at("h2", 1))
    assert [(i.num, i.host.spec_num) for i in saved(plan, Instance)] == [(0, 3), (1, 3)]


def test_hosts_outside_the_network_that_is_left_are_looked_at_again() -> None:
    left = ("10.2.0.0/24",)
    outside, inside, silent = (
        at(f"h{num + 1}:22", num, networks=left, internal_ip=address)
        for num, address in enumerate(("10.1.0.5", "10.2.0.6", ""))
    )
    plan = decided(b.fleet("lab", networks=left), spec(hosts=["h1", "h2", "h3"]), outside, inside, silent)
    assert [(each.num, each.due_at) for each in saved(plan, Instance)] == [(0, b.NOW)]


def test_this_machines_own_fleet_has_no_hosts_to_log_in_to() -> None:
    assert hosts_of(b.fleet_spec(ssh_config={"hosts": ["localhost"]})) == {}


# --- adding and removing one ------------------------------------------------------------------------------------------


def decided_host(instance: Instance, of: FleetSpec, *workflows: Workflow, reported: bool = False, **fleet: Any) -> Plan:
    now = b.NOW + b.SECOND
    presence = b.presence_of(instance, last=now, facts=b.host_facts(addresses=("10.0.0.7",))) if reported else None
    view = FleetView(b.fleet("lab", **fleet), of, (instance,))
    snapshot = InstanceSnapshot(now, instance, presence, view, (), None, workflows)
    plan = decide_instance(snapshot)
    assert lint(snapshot, plan) == []
    return plan


def adding(instance: Instance, status: str, **changes: Any) -> Workflow:
    return workflow_of(instance, ADD_HOST, b.NOW).with_(status=WorkflowStatus(status), version=1, **changes)


def removing(instance: Instance, status: str) -> Workflow:
    return workflow_of(instance, REMOVE_HOST, b.NOW).with_(status=WorkflowStatus(status), version=1)


def fresh(**fields: Any) -> Instance:
    return at("h1", status="pending", started_at=None, idle_since=None, **fields)


def test_a_new_host_is_set_up() -> None:
    plan = decided_host(fresh(), spec())
    (begun,) = saved(plan, Workflow)
    assert (begun.definition, begun.subject, begun.backend) == ("add_host", f"instance/{fresh().id}", "ssh")
    assert begun.unit in plan.steps[0].wake


def test_its_agents_report_makes_it_usable() -> None:
    plan = decided_host(fresh(), spec(), adding(fresh(), "running", due_at=b.NOW), reported=True)
    (host,) = saved(plan, Instance)
    assert (host.status, host.internal_ip) == ("idle", "10.0.0.7")


def test_one_that_cant_be_set_up_ends_with_the_reason_and_stays_in_view() -> None:
    undone = adding(fresh(), "undone", reason="Unfit", message="there is no Docker Engine")
    plan = decided_host(fresh(), spec(), undone)
    ended = saved(plan, Instance)[-1]
    assert (ended.status, ended.reason, ended.message) == ("terminated", "error", "there is no Docker Engine")
    assert saved(plan, Fleet)[-1].failed == (ended.id,)


def test_one_whose_agent_never_reports_is_late() -> None:
    plan = decided_host(
        fresh(), spec(), adding(fresh(), "undone", reason="timeout", message="its agent hasn't reported")
    )
    assert saved(plan, Instance)[-1].reason == "provisioning_timeout"


def test_one_that_is_deleted_while_it_is_set_up_is_left_as_it_was_found() -> None:
    plan = decided_host(fresh(), spec(), adding(fresh(), "running", due_at=b.NOW), status=FleetStatus.terminating)
    (cancelled,) = saved(plan, Workflow)
    assert cancelled.cancelled and saved(plan, Instance)[-1].status == "terminating"
    leaving = saved(plan, Instance)[-1]
    gone = decided_host(leaving, spec(), adding(fresh(), "undone"), status=FleetStatus.terminating)
    assert saved(gone, Instance)[-1].status == "terminated"
    assert saved(gone, Fleet) == [], "nothing failed"


def leaving(**fields: Any) -> Instance:
    return at("h1", status="terminating", reason="terminated_by_user", due_at=b.NOW, **fields)


def test_a_gateway_hears_at_once_that_its_hosts_fleet_ends() -> None:
    door = gateway()
    plan = decided(b.fleet("lab", status=FleetStatus.terminating), spec(), seated(door, at("h1:22")))
    assert saved(plan, Instance)[-1].status == "terminating"
    assert door.unit in {unit for step in plan.steps for unit in step.wake}


def test_a_host_is_cleared_before_it_is_gone() -> None:
    plan = decided_host(leaving(), spec(), adding(leaving(), "done"))
    (begun,) = saved(plan, Workflow)
    assert begun.definition == "remove_host"
    assert saved(plan, Instance)[-1].status == "terminating"
    running = decided_host(
        leaving(), spec(), adding(leaving(), "done"), removing(leaving(), "running").with_(due_at=b.NOW)
    )
    assert saved(running, Instance)[-1].status == "terminating"
    done = decided_host(leaving(), spec(), adding(leaving(), "done"), removing(leaving(), "done"))
    assert saved(done, Instance)[-1].status == "terminated"
    assert saved(done, Fleet) == [], "a fleet of hosts has no minimum to keep"


def test_removal_is_never_given_up_and_adding_is() -> None:
    assert [step.attempts for step in REMOVE_HOST.steps] == [None, None]
    assert all(step.attempts for step in ADD_HOST.steps)
    assert [step.name for step in ADD_HOST.steps if step.undo] == ["install", "relay", "start"]


def test_a_host_that_is_forgotten_isnt_waited_for() -> None:
    clearing = removing(leaving(), "running").with_(due_at=b.NOW)
    plan = decided_host(leaving(forgotten=True), spec(), adding(leaving(), "done"), clearing)
    assert saved(plan, Instance)[-1].status == "terminated"
    (cancelled,) = saved(plan, Workflow)
    assert cancelled.cancelled


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"network": "192.168.0.0/16"},
            "it has no address in the `network` 192.168.0.0/16; its addresses are 10.0.0.7",
        ),
        (
            {"hosts": [{"hostname": "h1", "internal_ip": "10.0.0.9"}]},
            "it doesn't have the `internal_ip` 10.0.0.9; its addresses are 10.0.0.7",
        ),
    ],
)
def test_a_host_outside_its_network_is_refused(changes: dict[str, Any], why: str) -> None:
    of = spec(**changes)
    instance = fresh().with_(host=hosts_of(of)["h1:22"])
    plan = decided_host(instance, of, adding(instance, "done"), reported=True)
    ended = saved(plan, Instance)[-1]
    assert (ended.status, ended.message) == ("terminating", why)


# --- every setting ----------------------------------------------------------------------------------------------------


def first(of: FleetSpec) -> HostLogin:
    return login(of, next(iter(hosts_of(of).values())))


def jump(of: FleetSpec) -> HostLogin:
    found = first(of).jump
    assert found is not None
    return found


JUMP = {"hostname": "head", "user": "gate", "identity_file": "j", "ssh_key": {"public": "", "private": "the gate's"}}


KEYLESS = {**JUMP, "ssh_key": None}
OWN = {"ssh_key": {"public": "", "private": "own"}}


def host(**settings: Any) -> FleetSpec:
    return spec(hosts=[{"hostname": "h1", **settings}])


def ssh_of(of: FleetSpec) -> Any:
    return of.configuration.ssh_config


def pair(of: FleetSpec) -> Any:
    return ssh_of(of).ssh_key


def found_at(of: FleetSpec) -> str:
    instance = fresh().with_(host=next(iter(hosts_of(of).values())))
    return internal_address(instance, of, b.host_facts(addresses=("172.16.0.1", "10.1.0.7", "10.0.0.3")))


def blocks_of(of: FleetSpec) -> int:
    instance = fresh().with_(host=next(iter(hosts_of(of).values())))
    (joined,) = saved(decided_host(instance, of, adding(instance, "done"), reported=True), Instance)
    return int(joined.total_blocks)


Case = tuple[FleetSpec, Callable[[FleetSpec], Any], Any]
_AT = "fleet.configuration.ssh_config."
CASES: Mapping[str, Case] = {
    f"{_AT}{name}": case
    for name, case in {
        "user": (spec(user="admin"), lambda s: first(s).user, "admin"),
        "port": (spec(port=2222), lambda s: first(s).port, 2222),
        "identity_file": (spec(identity_file="~/other"), lambda s: ssh_of(s).identity_file, "~/other"),
        "ssh_key.public": (spec(ssh_key={"public": "p", "private": "k"}), lambda s: pair(s).public, "p"),
        "ssh_key.private": (spec(ssh_key={"public": "", "private": "k"}), lambda s: first(s).private_key, "k"),
        "proxy_jump.hostname": (spec(proxy_jump=JUMP), lambda s: jump(s).hostname, "head"),
        "proxy_jump.user": (spec(proxy_jump=JUMP), lambda s: jump(s).user, "gate"),
        "proxy_jump.port": (spec(proxy_jump={**JUMP, "port": 2200}), lambda s: jump(s).port, 2200),
        "proxy_jump.identity_file": (spec(proxy_jump=KEYLESS), lambda s: jump(s).private_key, "the fleet's key"),
        "proxy_jump.ssh_key.public": (spec(proxy_jump=JUMP), lambda s: jump(s).user, "gate"),
        "proxy_jump.ssh_key.private": (spec(proxy_jump=JUMP), lambda s: jump(s).private_key, "the gate's"),
        "network": (spec(network="10.1.0.0/16"), found_at, "10.1.0.7"),
        "hosts.hostname": (host(), lambda s: first(s).hostname, "h1"),
        "hosts.user": (host(user="root"), lambda s: first(s).user, "root"),
        "hosts.port": (host(port=2022), lambda s: first(s).port, 2022),
        "hosts.identity_file": (host(identity_file="x"), lambda s: ssh_of(s).each[0].identity_file, "x"),
        "hosts.ssh_key.public": (host(**OWN), lambda s: first(s).private_key, "own"),
        "hosts.ssh_key.private": (host(**OWN), lambda s: first(s).private_key, "own"),
        "hosts.proxy_jump.hostname": (host(proxy_jump=JUMP), lambda s: jump(s).hostname, "head"),
        "hosts.proxy_jump.user": (host(proxy_jump=JUMP), lambda s: jump(s).user, "gate"),
        "hosts.proxy_jump.port": (host(proxy_jump={**JUMP, "port": 2201}), lambda s: jump(s).port, 2201),
        "hosts.proxy_jump.identity_file": (host(proxy_jump=JUMP), lambda s: jump(s).private_key, "the gate's"),
        "hosts.proxy_jump.ssh_key.public": (host(proxy_jump=JUMP), lambda s: jump(s).private_key, "the gate's"),
        "hosts.proxy_jump.ssh_key.private": (host(proxy_jump=JUMP), lambda s: jump(s).private_key, "the gate's"),
        "hosts.internal_ip": (host(internal_ip="10.0.0.3"), found_at, "10.0.0.3"),
        "hosts.blocks": (host(blocks=4), blocks_of, 4),
    }.items()
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_setting(case: Case) -> None:
    of, read, expected = case
    assert read(of) == expected


@pytest.mark.parametrize(
    ("everybodys", "own", "jump"),
    [
        (None, None, None),
        ({"hostname": "door", "user": "u", "identity_file": "~/k"}, None, ("door", 22, "u")),
        (None, {"hostname": "side", "user": "v", "identity_file": "~/k", "port": 7}, ("side", 7, "v")),
        (
            {"hostname": "door", "user": "u", "identity_file": "~/k"},
            {"hostname": "side", "user": "v", "identity_file": "~/k"},
            ("side", 22, "v"),
        ),
    ],
)
def test_a_host_is_reached_over_its_own_jump_host_or_that_of_all(everybodys: Any, own: Any, jump: Any) -> None:
    host = {"hostname": "h1", **({"proxy_jump": own} if own else {})}
    (found,) = hosts_of(spec(hosts=[host], **({"proxy_jump": everybodys} if everybodys else {}))).values()
    over = found.jump and (found.jump.hostname, found.jump.port, found.jump.user)
    assert over == jump


@pytest.mark.parametrize(
    ("joined", "status", "busy", "leaves"),
    [
        (True, "terminating", False, True),
        (True, "terminating", True, False),  # its jobs stop first
        (True, "idle", False, False),
        (False, "terminating", False, False),  # whoever added it clears it
    ],
)
def test_an_agent_clears_the_host_that_it_joined_with_once_its_jobs_are_over(
    joined: bool, status: str, busy: bool, leaves: bool
) -> None:
    host = b.host(0, status=InstanceStatus(status), host=OnPrem(hostname="h", port=0, joined=joined))
    assert should_leave(b.holding(host, b.job(b.run())) if busy else host) is leaves
    assert should_leave(host.with_(host=None)) is False
