"""What has gone wrong on Nebius: each trap, shown by the fake, and what the backend does about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from chalicelib.backends.nebius.backend import NebiusBackend
from chalicelib.backends.spi import Machine
from chalicelib.domain.instants import SECOND
from chalicelib.domain.owner import CALLED
from chalicelib.errors import (
    AlreadyThere,
    BackendError,
    Gone,
    InsufficientCapacity,
    InUse,
    MissingPermission,
    QuotaExceeded,
    Throttled,
    Transient,
    Unfit,
)
from tests.backends.clock import Clock
from tests.backends.conformance.requests import group_request_for, inside, request_for
from tests.backends.conformance.suite import end_all
from tests.backends.fakes.script import Cut, Fault, Rate
from tests.backends.nebius.compute import service_error
from tests.backends.nebius.fake import Nebius
from tests.backends.nebius.kinds import CPU, EIGHT, ONE, bought, offer, vm
from tests.backends.nebius.provider import INSTANCES, NebiusProvider, answer, client, config
from tests.backends.nebius.shop import Platform

# --- creations that fail later ---------------------------------------------------------------------------------------


def test_a_machine_that_falls_back_to_stopped_was_refused(backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
    """1: only its operation says why."""
    fake.short.add(ONE)
    made = bought(backend, ONE)
    clock.passes(fake.boot / SECOND + 1)
    assert vm(fake).state(clock.now()) == "STOPPED"
    with pytest.raises(Gone, match="not_enough_resources: Resource exhausted") as gone:
        backend.describe(made)
    assert gone.value.refused is InsufficientCapacity
    end_all(backend, clock.passes, made)
    assert not list(fake.books.existing("vm")) and not list(fake.books.existing("disk"))


def test_a_quota_that_is_noticed_later_has_its_numbers(backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
    made = bought(backend, ONE)
    violation = {"quota": "compute.disk.size.network-ssd", "limit": "1024", "requested": "1124"}
    error = service_error("quota_failure", violations=[violation])
    (operation,) = [each for each in fake.books.existing("operation") if each.facts["resource"] == made[0].id]
    operation.facts["status"] = {"code": 8, "message": "Quota limit exceeded", "details": [error]}
    vm(fake).goes(clock.now(), (0, "CREATING"))
    clock.passes(60)
    with pytest.raises(Gone, match=r"quota compute\.disk\.size\.network-ssd: limit 1024, requested 1124") as gone:
        backend.describe(made)
    assert gone.value.refused is QuotaExceeded, "though it still says that it is being created"


def test_creations_at_once_that_are_too_many_are_a_lack_of_capacity(backend: NebiusBackend, fake: Nebius) -> None:
    """2: one by one they work, so another attempt may."""
    fake.parallel = 1
    bought(backend)
    with pytest.raises(InsufficientCapacity):
        list(backend.create(request_for(offer(CPU), "two")))


def test_a_machine_that_never_gets_ready_stays_pending(backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
    """3: the engine gives it up after the facts' time, and it can be ended by then."""
    fake.stuck.add(CPU)
    made = bought(backend)
    clock.passes(backend.facts.provisioning_timeout / SECOND)
    assert backend.describe(made).state == "pending"
    backend.terminate(made[0])  # another operation is under way, which Nebius may say for a while
    (operation,) = [each for each in fake.books.existing("operation") if each.facts["resource"] == made[0].id]
    operation.goes(clock.now(), (0, "done"))
    end_all(backend, clock.passes, made)


def test_an_answer_that_is_lost_after_the_creation_is_found_by_its_key(backend: NebiusBackend, fake: Nebius) -> None:
    """4: before the machine shows."""
    fake.script.lag = 60 * SECOND
    fake.script.faults.append(Fault(f"{INSTANCES}.Create", Cut, when="after"))
    with pytest.raises(Transient):
        bought(backend)
    assert [each.id for each in bought(backend)] == [vm(fake).id]


def test_a_name_that_is_taken_by_a_creation_under_way_is_no_second_machine(
    backend: NebiusBackend, fake: Nebius, clock: Clock
) -> None:
    """7: when Nebius no longer knows the key, and doesn't show the machine yet."""
    fake.script.lag = 60 * SECOND
    made = bought(backend)
    fake.keys.clear()
    with pytest.raises(Transient, match="doesn't show it yet"):
        bought(backend)
    clock.passes(60)
    assert bought(backend) == made


def test_a_name_that_is_taken_by_somebody_elses_machine_is_said(
    backend: NebiusBackend, fake: Nebius, clock: Clock
) -> None:
    bought(backend)
    vm(fake).facts["labels"] = {"team": "web"}
    with pytest.raises(AlreadyThere, match="isn't ours"):
        bought(backend)


# --- what goes on costing money --------------------------------------------------------------------------------------


def test_a_disk_goes_with_its_machine(backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
    """5: it is managed."""
    made = bought(backend)
    assert len(list(fake.books.existing("disk"))) == 1
    end_all(backend, clock.passes, made)
    assert not list(fake.books.existing("disk")) and fake.billed() == 0.0


def test_a_disk_that_was_left_without_its_machine_is_swept(backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
    bought(backend)
    vm(fake).goes(clock.now(), (0, None))
    clock.passes(60)
    (left,) = backend.list_owned()
    assert left.handle.kind == "disk"
    end_all(backend, clock.passes, [left.handle])
    assert not list(fake.books.existing("disk"))


def test_a_spot_machine_that_was_taken_back_is_billed_until_it_is_deleted(
    backend: NebiusBackend, fake: Nebius, clock: Clock
) -> None:
    """13: so it is gone for its jobs, and still ours to end."""
    made = bought(backend, ONE, spot=True)
    clock.passes(60)
    assert backend.describe(made).state == "running"
    NebiusProvider(fake).reclaim(made)
    clock.passes(60)
    assert fake.billed() > 0
    with pytest.raises(Gone, match=r"has taken the preemptible machine .* back") as gone:
        backend.describe(made)
    assert gone.value.refused is None
    assert [each.handle for each in backend.list_owned()] == made
    end_all(backend, clock.passes, made)
    assert fake.billed() == 0.0


def test_a_machine_that_stopped_by_itself_is_not_started_again(
    backend: NebiusBackend, fake: Nebius, clock: Clock
) -> None:
    made = bought(backend)
    assert vm(fake).facts["spec"]["recovery_policy"] == "FAIL"
    clock.passes(60)
    vm(fake).goes(clock.now(), (0, "STOPPED"))
    with pytest.raises(Gone, match="is STOPPED"):
        backend.describe(made)


def test_an_address_is_kept_for_gateways_alone(backend: NebiusBackend, fake: Nebius) -> None:
    bought(backend)
    assert vm(fake).facts["spec"]["network_interfaces"][0]["public_ip_address"] == {}
    list(backend.create(replace(request_for(offer(CPU), "door"), open_ports=(80, 443))))
    *_, door = fake.books.existing("vm")
    assert door.facts["spec"]["network_interfaces"][0]["public_ip_address"] == {"static": True}


def test_reserved_capacity_is_used_by_who_names_it(backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
    reserved = fake.reserve("eu-north1", "gpu-h100-sxm", 8, "STATE_ACTIVE")
    bought(backend, EIGHT)
    assert vm(fake).facts["spec"]["reservation_policy"] == {"policy": "FORBID"}
    for wrong in (offer(EIGHT, spot=True), offer("gpu-h200-sxm 8gpu-128vcpu-1600gb", "us-central1")):
        with pytest.raises(Unfit, match=reserved):
            list(backend.create(replace(request_for(wrong, "two"), reservation=reserved)))
    list(backend.create(replace(request_for(offer(EIGHT), "two"), reservation=reserved)))
    *_, second = fake.books.existing("vm")
    assert second.facts["spec"]["reservation_policy"] == {"policy": "STRICT", "reservation_ids": [reserved]}


# --- GPU clusters ----------------------------------------------------------------------------------------------------


def test_a_cluster_is_deleted_once_it_is_empty(backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
    """6."""
    group = backend.create_group(group_request_for(offer(EIGHT)))
    made = list(backend.create(inside(request_for(offer(EIGHT)), group)))
    assert vm(fake).facts["spec"]["gpu_cluster"] == {"id": group.id}
    with pytest.raises(InUse, match="1 instances are in the cluster"):
        backend.delete_group(group)
    clock.passes(60)
    end_all(backend, clock.passes, made)
    backend.delete_group(group)
    with pytest.raises(Gone):
        backend.delete_group(group)


def test_the_fabric_with_the_most_room_is_chosen_among_those_allowed(fake: Nebius, clock: Clock) -> None:
    fake.advised = {"fabric-2": (3, "LOW", "FRESH"), "fabric-3": (30, "HIGH", "FRESH")}
    for fabrics, chosen in ((None, "fabric-3"), (["fabric-2"], "fabric-2")):
        backend = NebiusBackend(config(fabrics=fabrics), client(fake, clock.now), clock.now)
        backend.create_group(group_request_for(offer(EIGHT), chosen))
        *_, made = fake.books.existing("cluster")
        assert made.facts["spec"] == {"infiniband_fabric": chosen}
    backend = NebiusBackend(config(fabrics=["fabric-9"]), client(fake, clock.now), clock.now)
    (able,) = [each for each in backend.offers() if each.instance.name == EIGHT and not each.instance.resources.spot]
    with pytest.raises(Unfit, match=r"no InfiniBand fabric .* among fabric-9"):
        backend.create_group(group_request_for(able))


def test_machines_without_infiniband_need_no_cluster(backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
    group = backend.create_group(group_request_for(offer(CPU)))
    list(backend.create(inside(request_for(offer(CPU)), group)))
    assert "gpu_cluster" not in vm(fake).facts["spec"] and not list(fake.books.existing("cluster"))
    with pytest.raises(Gone):
        backend.delete_group(group)


def test_a_cluster_whose_answer_was_lost_is_found(backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
    fake.script.faults.append(Fault("nebius.compute.v1.GpuClusterService.Create", Cut, when="after"))
    with pytest.raises(Transient):
        backend.create_group(group_request_for(offer(EIGHT)))
    (cluster,) = fake.books.existing("cluster")
    assert backend.create_group(group_request_for(offer(EIGHT))).id == cluster.id
    fake.keys.clear()
    assert backend.create_group(group_request_for(offer(EIGHT))).id == cluster.id
    cluster.facts["labels"] = {}
    with pytest.raises(AlreadyThere):
        backend.create_group(group_request_for(offer(EIGHT)))


# --- requests that are refused ---------------------------------------------------------------------------------------


def test_a_script_that_is_too_long_is_refused_here(backend: NebiusBackend, fake: Nebius) -> None:
    """8: the rule is in the descriptors."""
    request = replace(request_for(offer(CPU)), user_data="#!/bin/sh\n" + "x" * 32_768)
    with pytest.raises(Unfit, match="longer than the 32768 bytes"):
        list(backend.create(request))


def test_quota_and_capacity_are_told_apart_by_their_details(backend: NebiusBackend, fake: Nebius) -> None:
    """10: they share a code; and older answers have only a text."""
    said = (
        (answer("RESOURCE_EXHAUSTED", "not_enough_resources"), InsufficientCapacity),
        (answer("RESOURCE_EXHAUSTED", "quota_failure"), QuotaExceeded),
        (answer("FAILED_PRECONDITION", "quota_failure"), QuotaExceeded),
        (answer("RESOURCE_EXHAUSTED", "too_many_requests"), Throttled),
        (answer("RESOURCE_EXHAUSTED"), InsufficientCapacity),
        (answer("PERMISSION_DENIED", "permission_denied"), MissingPermission),
        (answer("FAILED_PRECONDITION", "bad_resource_state"), Unfit),
        (answer("NOT_FOUND", "resource_not_found"), Unfit),
        (answer("UNIMPLEMENTED"), Unfit),
        (answer("DEADLINE_EXCEEDED"), Transient),
    )
    for wrong, kind in said:
        fake.script.faults.append(Fault(f"{INSTANCES}.Create", wrong))
        with pytest.raises(BackendError) as raised:
            bought(backend)
        assert type(raised.value) is kind, wrong
    quota = {"code": "RESOURCE_EXHAUSTED", "message": "Quota limit exceeded for GPUs", "details": []}
    fake.script.faults.append(Fault(f"{INSTANCES}.Create", replace(answer("UNKNOWN"), body=quota)))
    with pytest.raises(QuotaExceeded):
        bought(backend)


def test_a_read_that_exhausts_something_is_one_of_too_many(backend: NebiusBackend, fake: Nebius) -> None:
    asks: tuple[tuple[str, Callable[[], object], type[BackendError]], ...] = (
        ("List", lambda: list(backend.list_owned()), Throttled),
        ("GetByName", lambda: bought(backend), Throttled),
        ("Create", lambda: bought(backend), InsufficientCapacity),
    )
    for call, ask, kind in asks:
        fake.script.faults.append(Fault(f"{INSTANCES}.{call}", answer("RESOURCE_EXHAUSTED")))
        with pytest.raises(BackendError) as raised:
            ask()
        assert type(raised.value) is kind, call


def test_calls_that_are_too_many_are_throttled(backend: NebiusBackend, fake: Nebius) -> None:
    made = bought(backend)
    fake.script.rates[f"{INSTANCES}.BatchGet"] = Rate(1, 10 * SECOND)
    backend.describe(made)
    with pytest.raises(Throttled):
        backend.describe(made)


def test_a_group_or_subnet_that_has_gone_is_looked_up_again(backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
    bought(backend)
    for each in fake.books.existing("group"):
        each.goes(clock.now(), (0, None))
    request = request_for(offer(CPU), "two")
    with pytest.raises(Unfit, match="no security group"):
        list(backend.create(request))
    assert list(backend.create(request))


def test_a_preemptible_machine_says_what_it_may_cost(backend: NebiusBackend, fake: Nebius) -> None:
    """Since October 2026 it is refused without a pricing model."""
    bought(backend, ONE, spot=True)
    spec = vm(fake).facts["spec"]
    assert (spec["preemptible"], spec["follows_spot_price"]) == ({"on_preemption": "STOP"}, {})


def test_what_a_user_calls_a_machine_is_a_label_only_if_it_is_accepted_for_certain(
    backend: NebiusBackend, fake: Nebius
) -> None:
    for name, kept in (("training", True), ("Größe 2", False)):
        request = request_for(offer(CPU), name)
        tags = tuple((key, name if key == CALLED else value) for key, value in request.tags)
        list(backend.create(replace(request, tags=tags)))
        *_, made = fake.books.existing("vm")
        assert (CALLED in made.facts["labels"]) is kept


# --- listings and descriptions ---------------------------------------------------------------------------------------


def test_projects_beyond_the_first_ten_are_seen(backend: NebiusBackend, fake: Nebius) -> None:
    """12: a page has ten unless more are asked for."""
    fake.projects |= {f"project-e00n{n}": (f"team-{n}", "eu-north1") for n in range(20)}
    fake.projects["project-e00last"] = ("default-project-eu-west1", "eu-west1")
    fake.platforms["cpu-e2"] = Platform(("eu-west1",), {"2vcpu-8gb": (2, 8, 0)}, 0.02, "q", spot=False)
    fake.script.page = 7
    assert "eu-west1" in {each.region for each in backend.offers()}


def test_an_address_comes_late_and_with_a_prefix(backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
    """14."""
    made = bought(backend)
    clock.passes(60)
    found = backend.describe(made)
    assert found.state == "running" and "/" not in found.hostname + found.internal_ip
    late = Fault(f"{INSTANCES}.BatchGet", _without_addresses)
    fake.script.faults.append(late)
    assert backend.describe(made) == Machine("pending")


def _without_addresses(body: dict[str, dict[str, dict[str, dict[str, object]]]]) -> object:
    (identity,) = body["items"]
    instance = body["items"][identity]["instance"]
    return {"items": {identity: {"instance": {**instance, "status": {"state": "RUNNING"}}}}}


def test_a_machine_that_is_being_deleted_is_gone_for_its_jobs_and_not_yet_proven_to_be(
    backend: NebiusBackend, clock: Clock
) -> None:
    """15."""
    made = bought(backend)
    clock.passes(60)
    backend.terminate(made[0])
    with pytest.raises(Gone, match="is DELETING"):
        backend.describe(made)
    backend.terminate(made[0])
    clock.passes(60)
    with pytest.raises(Gone):
        backend.terminate(made[0])


def test_a_deletion_during_another_operation_is_asked_for_again(
    backend: NebiusBackend, fake: Nebius, clock: Clock
) -> None:
    """16."""
    made = bought(backend)
    backend.terminate(made[0])
    assert not fake.calls_of(f"{INSTANCES}.Delete") or vm(fake).state(clock.now()) != "DELETING"
    end_all(backend, clock.passes, made)
    assert not list(fake.books.existing("vm"))


def test_a_machine_whose_creation_isnt_over_is_not_gone_however_long_it_doesnt_show(
    backend: NebiusBackend, fake: Nebius, clock: Clock
) -> None:
    fake.boot, fake.script.lag = 600 * SECOND, 500 * SECOND
    made = bought(backend)
    clock.passes(300)
    for call in (backend.describe, lambda handles: backend.terminate(handles[0])):
        with pytest.raises(Transient, match="doesn't show"):
            call(made)


def test_many_are_described_in_one_call(backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
    made = [list(backend.create(request_for(offer(CPU), f"n{n}"))) for n in range(5)]
    clock.passes(60)
    before = len(fake.calls)
    found = backend.describe_several([*made, [made[0][0].with_(id="computeinstance-e00gone")], []])
    assert [isinstance(each, Machine) and each.state for each in found] == ["running"] * 5 + [False] * 2
    assert all(isinstance(each, Gone) for each in found[5:])
    assert len(fake.calls) - before == 2, "the second asks what became of the unknown one"


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ({"error": {"code": 7, "message": "Permission denied"}}, MissingPermission),
        ({"error": {"code": 13, "message": "internal"}}, Transient),
        (None, Transient),
    ],
)
def test_an_answer_about_one_machine_that_proves_nothing_isnt_taken_for_its_end(
    backend: NebiusBackend, fake: Nebius, clock: Clock, result: dict[str, object] | None, error: type[BackendError]
) -> None:
    made = bought(backend)
    clock.passes(60)
    items = {made[0].id: result} if result else {}
    fake.script.faults.append(Fault(f"{INSTANCES}.BatchGet", lambda body: {"items": items}))
    with pytest.raises(error):
        backend.describe(made)


def test_a_state_that_nobody_knows_yet_is_no_end(backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
    made = bought(backend)
    clock.passes(60)
    vm(fake).goes(clock.now(), (0, "UPDATING"))
    assert backend.describe(made).state == "pending"
    vm(fake).goes(clock.now(), (0, "UNSPECIFIED"))
    assert backend.describe(made).state == "pending"


def test_a_creation_that_was_aborted_is_tried_elsewhere(backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
    made = bought(backend)
    (operation,) = [each for each in fake.books.existing("operation") if each.facts["resource"] == made[0].id]
    operation.facts["status"] = {"code": 13, "message": "internal error"}
    vm(fake).goes(clock.now(), (0, "ERROR"))
    clock.passes(60)
    with pytest.raises(Gone, match="INTERNAL: internal error") as gone:
        backend.describe(made)
    assert gone.value.refused is InsufficientCapacity
