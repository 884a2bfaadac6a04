"""What is decided about a gateway: which machines carry it, what it says, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.domain.closings import Closing
from chalicelib.domain.events import EventType
from chalicelib.domain.gateways import Gateway, GatewayStatus, ReplicaState
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE
from chalicelib.domain.retention import Retention
from chalicelib.machines.gateway import CHECK_GATEWAY_EVERY, CHECK_HOSTS_EVERY, TO_LEAVE
from chalicelib.planning.gateways.gateways import apply_report, decide_gateway, staying
from chalicelib.planning.gateways.invariants import gateways
from chalicelib.planning.gateways.snapshots import GatewaySnapshot
from chalicelib.planning.kernel.plan import Plan, Step
from chalicelib.planning.kernel.requests import delete_gateway
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.projects.deletion import ClosingSnapshot, decide_closing
from chalicelib.planning.projects.erasure import gateway_erasable
from tests.world import nouns as b
from tests.world.gateways import carrying, gateway, host, seated, snapshot_of
from tests.world.nouns import lint


def decided(snapshot: GatewaySnapshot) -> tuple[Gateway, dict[str, Instance], Plan]:
    plan = decide_gateway(snapshot)
    assert lint(snapshot, plan) == []
    saves = [noun for step in plan.steps for noun in step.saves]
    of = next((noun for noun in saves if isinstance(noun, Gateway)), snapshot.gateway)
    return of, {noun.name: noun for noun in saves if isinstance(noun, Instance)}, plan


def states(of: Gateway) -> list[tuple[int, str, str]]:
    return [(each.num, each.instance_name, each.state.value) for each in of.replicas]


# --- where it runs ----------------------------------------------------------------------------------------------------


def test_replicas_go_to_the_hosts_of_the_fleet_in_order() -> None:
    of, machines, plan = decided(
        snapshot_of(gateway(wanted=2, http_port=8080, https_port=None), host(0), host(1), host(2))
    )
    assert states(of) == [(0, "edge-0", "provisioning"), (1, "edge-1", "provisioning")]
    assert of.status is GatewayStatus.provisioning and of.message == "" and of.due_at == b.NOW + 15 * MINUTE
    seat = machines["edge-1"].gateway
    assert seat is not None and (seat.gateway_id, seat.name, seat.num) == (of.id, "door", 1)
    assert (seat.http_port, seat.https_port, seat.leaving) == (8080, None, False)
    assert set(plan.steps[0].wake) == {f"instance/{machine.id}" for machine in machines.values()}
    assert [each.hostname for each in of.replicas] == ["10.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize(
    "taken",
    [
        {"unreachable_since": b.NOW},
        {"status": InstanceStatus.provisioning},
        {"status": InstanceStatus.terminating},
        {"gateway": seated(gateway("other"), host(0)).gateway},
        {"offer": b.offer()},
    ],
    ids=["unreachable", "joins", "leaves", "carries-another", "bought"],
)
def test_a_host_that_cant_carry_it_is_passed_over(taken: dict[str, Any]) -> None:
    of, _, _ = decided(snapshot_of(gateway(), host(0, **taken), host(1)))
    assert states(of) == [(0, "edge-1", "provisioning")]
    of, _, _ = decided(snapshot_of(gateway(), host(0, **taken)))
    assert of.status is GatewayStatus.submitted and of.due_at == b.NOW + CHECK_HOSTS_EVERY
    assert of.message == "waiting for a host of fleet edge that can be reached and carries no gateway"


def test_it_says_what_it_waits_for() -> None:
    of, _, plan = decided(snapshot_of(gateway()))
    assert of.message == "the fleet edge has no hosts yet"
    assert [event.message for event in plan.steps[0].events] == [of.message]
    _, _, plan = decided(snapshot_of(of.with_(due_at=b.NOW)))
    assert [event.message for step in plan.steps for event in step.events] == []  # once is enough
    of, _, _ = decided(snapshot_of(gateway(), fleet_exists=False))
    assert of.message == "the fleet edge no longer exists"
    of, _, _ = decided(snapshot_of(gateway(wanted=3), host(0)))
    assert of.message == "waiting for 2 hosts of fleet edge that can be reached and carry no gateway"


def test_a_busy_host_carries_it_too() -> None:
    busy = b.holding(host(0), b.job(b.run()))
    of, machines, _ = decided(snapshot_of(gateway(), busy))
    assert states(of) == [(0, "edge-0", "provisioning")] and machines["edge-0"].claims == busy.claims


# --- its status -------------------------------------------------------------------------------------------------------


def reported(of: Gateway, machine: Instance, state: str, message: str = "") -> tuple[Gateway, Step]:
    draft = Draft(b.NOW)
    return apply_report(draft, of, machine, state, message), draft.step()


def test_it_runs_once_all_its_replicas_do() -> None:
    one, two = host(0), host(1)
    of = carrying(gateway(), one, two, state=ReplicaState.provisioning)
    one, two = seated(of, one), seated(of, two, 1)
    of, step = reported(of, one, "running")
    assert step.wake == (of.unit,) and [each.type for each in step.events] == [EventType.ready]
    of, _, _ = decided(snapshot_of(of, one, two))
    assert of.status is GatewayStatus.provisioning
    of, _ = reported(of, two, "installing", "nginx is being installed")
    assert [each.message for each in of.replicas] == ["", "nginx is being installed"]
    of, _, _ = decided(snapshot_of(of, one, two))
    assert (of.status, of.message) == (GatewayStatus.provisioning, "edge-1: nginx is being installed")
    of, _ = reported(of, two, "running")
    of, _, _ = decided(snapshot_of(of, one, two))
    assert (of.status, of.message) == (GatewayStatus.running, "")
    assert of.running_at == b.NOW and of.due_at == b.NOW + CHECK_GATEWAY_EVERY


def test_a_repeated_report_changes_nothing() -> None:
    of = carrying(gateway(), host(0))
    same, step = reported(of, seated(of, host(0)), "running")
    assert same is of and step.saves == ()
    stranger, step = reported(of, host(5), "running")
    assert stranger is of and step.saves == ()


def test_one_that_fails_says_why_and_runs_when_it_can() -> None:
    machine = host(0)
    of = carrying(gateway(), machine, state=ReplicaState.provisioning)
    machine = seated(of, machine)
    of, step = reported(of, machine, "failed", "install nginx first")
    assert [(each.type, each.reason, each.detail) for each in step.events] == [
        (EventType.failed, "edge-0", "install nginx first")
    ]
    again, step = reported(of, machine, "failed", "install nginx first")
    assert again is of and not step.events
    of, _, _ = decided(snapshot_of(of, machine))
    assert (of.status, of.message) == (GatewayStatus.failed, "edge-0: install nginx first")
    of, _ = reported(of, machine, "running")
    of, _, _ = decided(snapshot_of(of, machine))
    assert (of.status, of.message) == (GatewayStatus.running, "")


def test_one_that_takes_too_long_has_failed() -> None:
    machine = host(0)
    of = carrying(gateway(), machine, state=ReplicaState.provisioning)
    of, _, _ = decided(snapshot_of(of, seated(of, machine), now=b.NOW + 15 * MINUTE))
    assert (of.status, of.message) == (GatewayStatus.failed, "its replicas don't run yet")
    of, _, _ = decided(snapshot_of(gateway(), now=b.NOW + 15 * MINUTE))
    assert (of.status, of.message) == (GatewayStatus.failed, "the fleet edge has no hosts yet")


def test_one_that_ran_stays_running_and_says_what_is_wrong() -> None:
    machine = host(0)
    of = carrying(gateway(), machine)
    machine = seated(of, machine)
    of, _ = reported(of, machine, "failed", "port 80 is taken")
    of, _, _ = decided(snapshot_of(of, machine))
    assert (of.status, of.message) == (GatewayStatus.running, "edge-0: port 80 is taken")


# --- replicas that end ------------------------------------------------------------------------------------------------


def test_a_replica_moves_when_its_host_leaves() -> None:
    first, second = host(0, status=InstanceStatus.terminating), host(1)
    of = carrying(gateway(), first)
    of, machines, _ = decided(snapshot_of(of, seated(of, first), second))
    assert states(of) == [(0, "edge-0", "terminating"), (1, "edge-1", "provisioning")]
    assert machines["edge-0"].gateway is not None and machines["edge-0"].gateway.leaving
    gone = machines["edge-0"].with_(status=InstanceStatus.terminated)
    of, _, _ = decided(snapshot_of(of, gone, machines["edge-1"]))
    assert states(of) == [(1, "edge-1", "provisioning")]


def test_scaling_in_takes_one_that_doesnt_run_first() -> None:
    one, two = host(0), host(1)
    of = carrying(gateway(), one, two, wanted=1)
    down = of.replicas[0].with_(state=ReplicaState.provisioning)
    one, two = seated(of, one), seated(of, two, 1)
    shrunk, _, _ = decided(snapshot_of(of.with_(replicas=(down, of.replicas[1])), one, two))
    assert states(shrunk) == [(0, "edge-0", "terminating"), (1, "edge-1", "running")]
    shrunk, _, _ = decided(snapshot_of(of, one, two))
    assert states(shrunk) == [(0, "edge-0", "running"), (1, "edge-1", "terminating")]


def deleting(of: Gateway) -> Gateway:
    (deleted,) = (save for step in delete_gateway(of, Draft(b.NOW)).steps for save in step.saves)
    assert isinstance(deleted, Gateway)
    return deleted


def test_it_is_deleted_when_no_machine_carries_it() -> None:
    machine = host(0)
    of = carrying(gateway(), machine)
    of, machines, _ = decided(snapshot_of(deleting(of), seated(of, machine)))
    assert of.status is GatewayStatus.deleting and states(of) == [(0, "edge-0", "terminating")]
    assert of.due_at == b.NOW + TO_LEAVE
    leaving_machine = machines["edge-0"]
    assert leaving_machine.gateway is not None and leaving_machine.gateway.leaving
    waits, _, _ = decided(snapshot_of(of, leaving_machine, now=b.NOW + MINUTE))
    assert waits.status is GatewayStatus.deleting
    of, _, _ = decided(snapshot_of(of, leaving_machine.with_(gateway=None), now=b.NOW + MINUTE))
    assert of.deleted and of.due_at is None and of.replicas == () and of.deleted_at == b.NOW + MINUTE


def test_a_silent_host_isnt_waited_for_forever() -> None:
    machine = host(0, unreachable_since=b.NOW)
    of = carrying(gateway(), machine)
    of, machines, _ = decided(snapshot_of(deleting(of), seated(of, machine)))
    of, machines, _ = decided(snapshot_of(of, machines["edge-0"], now=b.NOW + TO_LEAVE))
    assert of.deleted and machines["edge-0"].gateway is None


def test_a_machine_that_was_bought_for_it_ends_with_its_replica() -> None:
    of = gateway(fleet="", backend="aws", region="eu")
    machine = b.machine(0, b.fleet("door").with_(id=of.id), version=1)
    of = carrying(of, machine)
    assert seated(of, machine).of_gateway and not seated(of, host(0)).of_gateway
    snapshot = GatewaySnapshot(b.NOW, deleting(of), {machine.id: seated(of, machine)})
    of, machines, _ = decided(snapshot)
    ended = machines[machine.name]
    assert ended.status is InstanceStatus.terminating and states(of) == [(0, machine.name, "terminating")]
    next_snapshot = GatewaySnapshot(b.NOW + 2 * TO_LEAVE, of, {ended.id: ended})
    still, _, _ = decided(next_snapshot)
    assert not still.deleted  # its cloud may still bill for it
    gone, _, _ = decided(GatewaySnapshot(b.NOW, of, {ended.id: ended.with_(status=InstanceStatus.terminated)}))
    assert gone.deleted


def test_a_deleted_one_is_left_alone() -> None:
    assert decide_gateway(snapshot_of(gateway(status=GatewayStatus.deleted, due_at=None))).empty
    assert delete_gateway(gateway(status=GatewayStatus.deleting), Draft(b.NOW)).empty


def test_staying_counts_the_replicas_whose_machine_stays() -> None:
    one, two, three = host(0), host(1), host(2)
    of = carrying(gateway(), one, two, three)
    seats = {m.id: seated(of, m, n) for n, m in enumerate((one, two, three))}
    assert staying(of, seats) == 3
    assert staying(of, {**seats, one.id: one, two.id: seats[two.id].with_(status=InstanceStatus.terminating)}) == 1


@given(st.data())
@pytest.mark.slow
def test_whatever_happens_to_its_hosts_each_replica_has_a_machine_of_its_own(data: st.DataObject) -> None:
    """Hosts come, go, fall silent and report; the gateway is scaled, and deleted in the end."""
    of, hosts, now = gateway(wanted=data.draw(st.integers(1, 3))), [host(n) for n in range(4)], b.NOW
    kinds = st.sampled_from(["end", "gone", "silent", "back", "running", "failed", "dropped", "scale", "wait"])
    for happens in data.draw(st.lists(st.tuples(kinds, st.integers(0, 3)), max_size=25)):
        kind, num = happens
        each = hosts[num]
        seat = each.gateway
        if kind == "end" and each.status is InstanceStatus.idle:
            each = each.with_(status=InstanceStatus.terminating)
        elif kind == "gone" and each.status is InstanceStatus.terminating:
            each = each.with_(status=InstanceStatus.terminated, due_at=None)
        elif kind in ("silent", "back"):
            each = each.with_(unreachable_since=now if kind == "silent" else None)
        elif kind in ("running", "failed"):
            of = apply_report(Draft(now), of, each, kind, "")
        elif kind == "dropped" and seat is not None and seat.leaving:
            each = each.with_(gateway=None)
        elif kind == "scale":
            of = of.with_(wanted=num or 1, due_at=now)
        elif kind == "wait":
            now += 10 * MINUTE
        hosts[num] = each
        of, changed, _ = decided(snapshot_of(of, *hosts, now=now))
        hosts = [changed.get(each.name, each) for each in hosts]
        carried = [each for each in hosts if each.gateway and each.status is not InstanceStatus.terminated]
        assert {each.instance_id for each in of.replicas} == {each.id for each in carried}
        assert sum(each.state is not ReplicaState.terminating for each in of.replicas) <= of.wanted
        assert of.due_at is not None and of.due_at > now
    of = deleting(of)
    of, changed, _ = decided(snapshot_of(of, *hosts, now=now))
    hosts = [changed.get(each.name, each) for each in hosts]
    if not of.deleted:
        of, _, _ = decided(snapshot_of(of, *hosts, now=now + 2 * TO_LEAVE))
    assert of.deleted


# --- what no plan may do ----------------------------------------------------------------------------------------------


def broken(*saves: Any, before: tuple[Any, ...] = ()) -> list[str]:
    return list(gateways(Step(saves), {(type(each), each.id): each for each in before}))


def test_no_plan_forgets_a_replica() -> None:
    machine = host(0)
    of = carrying(gateway(), machine)
    with_seat = seated(of, machine)
    leaving = with_seat.with_(gateway=with_seat.gateway and with_seat.gateway.with_(leaving=True))
    assert broken(of, with_seat, before=(machine,)) == []
    assert broken(with_seat, before=(machine,)) == ["instance edge-0 gets a seat that is no replica of this step"]
    assert broken(machine, before=(with_seat,)) == ["instance edge-0 loses its seat before its agent knows"]
    assert broken(machine, before=(leaving,)) == []
    none = of.with_(replicas=())
    assert broken(none, before=(of, with_seat)) == ["gateway door drops its replica on edge-0, which goes on"]
    assert broken(none, leaving, before=(of, with_seat)) == []
    assert broken(of.with_(due_at=None)) == ["gateway door is running, but nothing will look at it again"]
    ended = of.with_(status=GatewayStatus.deleted, due_at=None)
    assert broken(ended) == ["gateway door is deleted while a machine carries it"]
    twice = of.with_(replicas=(of.replicas[0], of.replicas[0].with_(num=1)))
    assert broken(twice) == ["gateway door has a number or a machine twice"]


def test_a_deleted_project_deletes_its_gateways() -> None:
    closing = Closing(id=b.PROJECT, began_at=b.NOW, due_at=b.NOW, version=1)
    plan = decide_closing(ClosingSnapshot(b.NOW, closing, (), (), gateways=(gateway(),)))
    saved = [noun for step in plan.steps for noun in step.saves]
    assert [noun.status for noun in saved if isinstance(noun, Gateway)] == [GatewayStatus.deleting]
    assert any(isinstance(noun, Closing) and noun.due_at for noun in saved)


def test_its_record_goes_after_its_time() -> None:
    of = gateway(status=GatewayStatus.deleted, deleted_at=b.NOW, due_at=None)
    assert gateway_erasable(of, Retention(), b.NOW + 30 * b.DAY) and not gateway_erasable(
        of, Retention(), b.NOW + 29 * b.DAY
    )
    assert not gateway_erasable(gateway(), Retention(), b.NOW + 90 * b.DAY)
