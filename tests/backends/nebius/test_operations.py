"""What is created on Nebius, and what its operations say of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.backends.nebius.backend import NebiusBackend
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.errors import Gone, InsufficientCapacity, NotYet, Transient, Unfit
from tests.backends.clock import Clock
from tests.backends.conformance.requests import group_request_for, inside, request_for
from tests.backends.conformance.suite import end_all
from tests.backends.fakes.books import Resource
from tests.backends.fakes.script import Fault
from tests.backends.nebius.fake import Nebius
from tests.backends.nebius.kinds import EIGHT, bought, offer, vm
from tests.backends.nebius.provider import INSTANCES, answer, client, config

NO_ROOM: Mapping[str, Any] = {"code": 8, "message": "no room", "details": []}


def operations(fake: Nebius, handle: Handle) -> list[Resource]:
    return [each for each in fake.books.existing("operation") if each.facts["resource"] == handle.id]


def forgotten(fake: Nebius, clock: Clock, handle: Handle) -> None:
    for each in operations(fake, handle):
        each.goes(clock.now(), (0, None))


def failed_update(fake: Nebius, handle: Handle) -> None:
    about = f"{INSTANCES}.Update"
    states = ((0, "running"), (1, "done"))
    fake.books.add(
        "operation", *states, prefix="computeoperation-", resource=handle.id, status=dict(NO_ROOM), about=about
    )


def test_a_new_machine_that_shows_nowhere_yet_is_not_gone(backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
    """Neither it nor its operation."""
    fake.script.lag = backend.facts.visibility_lag - SECOND
    (made,) = bought(backend)
    forgotten(fake, clock, made)
    clock.passes(2)
    for ask in (lambda: backend.describe([made]), lambda: backend.terminate(made)):
        with pytest.raises(Transient, match="doesn't show"):
            ask()
    clock.passes(60)
    assert backend.describe([made]).state == "running"


def test_its_handle_is_the_same_whichever_call_returns_it(backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
    made = bought(backend)
    clock.passes(60)
    assert bought(backend) == made == [each.handle for each in backend.list_owned()]


def test_an_operation_that_isnt_the_creation_says_nothing_of_it(
    backend: NebiusBackend, fake: Nebius, clock: Clock
) -> None:
    """Nebius forgets old ones."""
    (made,) = bought(backend)
    clock.passes(3600)
    forgotten(fake, clock, made)
    failed_update(fake, made)
    clock.passes(5)
    for state in ("UPDATING", "STARTING"):
        vm(fake).goes(clock.now(), (0, state))
        assert backend.describe([made]).state == "pending", state
    vm(fake).goes(clock.now(), (0, "STOPPED"))
    with pytest.raises(Gone, match="is STOPPED") as gone:
        backend.describe([made])
    assert gone.value.refused is None


def test_a_machine_that_is_being_updated_was_created(backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
    (made,) = bought(backend)
    clock.passes(60)
    for each in operations(fake, made):
        each.facts |= {"status": dict(NO_ROOM), "about": ""}
    vm(fake).goes(clock.now(), (0, "UPDATING"))
    assert backend.describe([made]).state == "pending"


class FailsAtOnce(Nebius):
    """The creation is over when it is answered, and has left what it made."""

    def _operation(self, call: Any, resource: str, takes: int, failure: Mapping[str, Any] | None = None) -> Any:
        if call.operation.name != f"{INSTANCES}.Create":
            return super()._operation(call, resource, takes, failure)
        vm(self).goes(self.now(), (0, "STOPPED"))
        return super()._operation(call, resource, 0, NO_ROOM)


def test_a_creation_that_is_answered_as_failed_is_ended_by_its_handle(clock: Clock) -> None:
    fake = FailsAtOnce(clock.now)
    backend = NebiusBackend(config(), client(fake, clock.now), clock.now)
    made = bought(backend)
    assert [each.id for each in made] == [vm(fake).id]
    with pytest.raises(Gone, match="no room") as gone:
        backend.describe(made)
    assert gone.value.refused is InsufficientCapacity
    end_all(backend, clock.passes, made)
    assert fake.billed() == 0.0


class WithOtherIds(Nebius):
    def _rules_broken(self, where: str, schema: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[str]:
        yield from ()


def test_an_id_of_another_form_is_described_if_nebius_knows_it(clock: Clock) -> None:
    fake = WithOtherIds(clock.now)
    backend = NebiusBackend(config(), client(fake, clock.now), clock.now)
    made = bought(backend)
    clock.passes(60)
    vm(fake).id = "computevm-e00new"
    assert backend.describe([made[0].with_(id="computevm-e00new")]).state == "running"
    fake.script.faults.append(Fault(f"{INSTANCES}.Get", answer("UNAVAILABLE")))
    one, other = backend.describe_several([[made[0].with_(id="computevm-e00new")], []])
    assert (type(one), type(other)) == (Transient, Gone), "what fails is its own"


# --- GPU clusters ----------------------------------------------------------------------------------------------------


@pytest.fixture
def group(backend: NebiusBackend) -> Handle:
    return backend.create_group(group_request_for(offer(EIGHT)))


def cluster(fake: Nebius) -> Resource:
    (found,) = fake.books.existing("cluster")
    return found


def test_a_cluster_that_is_gone_is_made_anew(backend: NebiusBackend, fake: Nebius, clock: Clock, group: Handle) -> None:
    cluster(fake).goes(clock.now(), (0, None))
    clock.passes(60)
    with pytest.raises(Gone):
        list(backend.create(inside(request_for(offer(EIGHT)), group)))
    again = backend.create_group(group_request_for(offer(EIGHT)))
    assert again.id == cluster(fake).id != group.id
    assert list(backend.create(inside(request_for(offer(EIGHT)), again)))


def test_what_else_is_missing_isnt_the_end_of_its_group(
    backend: NebiusBackend, fake: Nebius, clock: Clock, group: Handle
) -> None:
    list(backend.create(inside(request_for(offer(EIGHT), "one"), group)))
    for each in fake.books.existing("group"):
        each.goes(clock.now(), (0, None))
    request = inside(request_for(offer(EIGHT), "two"), group)
    with pytest.raises(Unfit, match="no security group"):
        list(backend.create(request))
    assert list(backend.create(request)), "it has looked again"


def test_a_machine_waits_for_its_cluster(backend: NebiusBackend, fake: Nebius, clock: Clock, group: Handle) -> None:
    cluster(fake).goes(clock.now(), (0, "new"), (30 * SECOND, "there"))
    request = inside(request_for(offer(EIGHT)), group)
    with pytest.raises(NotYet, match="isn't ready"):
        list(backend.create(request))
    clock.passes(30)
    assert list(backend.create(request))


def test_a_cluster_of_reserved_machines_is_in_their_fabric(fake: Nebius, clock: Clock) -> None:
    reserved = fake.reserve("eu-north1", "gpu-h100-sxm", 16, "STATE_ACTIVE", fabric="fabric-3")
    backend = NebiusBackend(config(), client(fake, clock.now), clock.now)
    (wanted,) = [each for each in backend.offers() if each.reservation == reserved and each.instance.name == EIGHT]
    group = backend.create_group(group_request_for(wanted))
    assert cluster(fake).facts["spec"] == {"infiniband_fabric": "fabric-3"}
    assert list(backend.create(replace(inside(request_for(wanted), group), reservation=reserved)))
    elsewhere = NebiusBackend(config(fabrics=["fabric-2"]), client(fake, clock.now), clock.now)
    with pytest.raises(Unfit, match=r"in the InfiniBand fabric fabric-3, which isn't among fabric-2"):
        elsewhere.create_group(group_request_for(wanted, "other"))
