"""Names are all that Crusoe has against a second creation: what is adopted by them, and what becomes of two with one
name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.backends.crusoe.backend import CrusoeBackend
from chalicelib.backends.crusoe.client import Body, CrusoeClient
from chalicelib.backends.crusoe.facts import FACTS
from chalicelib.backends.kit.rest import RestAnswer, RestCall
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.errors import (
    AlreadyThere,
    Gone,
    InsufficientCapacity,
    QuotaExceeded,
    Transient,
)
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for, volume_request
from tests.backends.crusoe.fake import Crusoe
from tests.backends.crusoe.orders import (
    CPU,
    EAST,
    H100,
    offered,
    running,
    vms,
    with_data_disk,
)
from tests.backends.crusoe.provider import CONFIG, CrusoeProvider, prices
from tests.backends.fakes.script import Cut, Fault, misses
from tests.backends.fakes.transport import sender


def test_where_names_are_unique_a_second_machine_is_refused(
    backend: CrusoeBackend, crusoe: Crusoe, clock: Clock
) -> None:
    """It isn't listed yet; the next try finds it."""
    request = request_for(offered(backend, CPU))
    crusoe.script.lag = 10 * SECOND
    made = list(backend.create(request))
    with pytest.raises(AlreadyThere):
        list(backend.create(request))
    clock.passes(10)
    assert list(backend.create(request)) == made


def test_where_names_arent_unique_the_older_machine_is_the_one(
    backend: CrusoeBackend, crusoe: Crusoe, clock: Clock
) -> None:
    crusoe.unique_names = False
    request = request_for(offered(backend, CPU))
    crusoe.script.lag = 10 * SECOND
    first, second = list(backend.create(request)), list(backend.create(request))
    clock.passes(10)
    listed = {each.handle.id for each in backend.list_owned(request.instance_id)}
    assert first != second and listed == {handle.id for handle in (*first, *second)}
    assert list(backend.create(request)) == first
    clock.passes(10)
    assert list(backend.create(request)) == first, "the other is being deleted"
    assert backend.describe([*second, *first]).state == "pending"
    clock.passes(60)
    assert [each.id for each in vms(crusoe)] == [first[0].id]
    assert backend.describe([*second, *first]).state == "running"


@pytest.mark.parametrize("volume", [True, False])
def test_of_two_disks_with_a_name_one_is_deleted(
    backend: CrusoeBackend, crusoe: Crusoe, clock: Clock, volume: bool
) -> None:
    """The first was listed late, after a repeated creation made another."""
    crusoe.unique_names = False
    crusoe.making = 15 * SECOND
    crusoe.script.lag = 20 * SECOND
    asked, request = volume_request(EAST), with_data_disk(backend)

    def made() -> Handle:
        return backend.create_volume(asked) if volume else next(backend.create(request))

    crusoe.script.faults.append(Fault("createDisk", Cut, when="after"))
    with pytest.raises(Transient):
        made()
    again = made()
    clock.passes(30)
    older = made()
    assert older != again
    clock.passes(30)
    assert [each.id for each in crusoe.books.existing("disk")] == [older.id]


def test_the_disk_that_a_machine_has_is_the_one(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock) -> None:
    """Whichever is older."""
    crusoe.unique_names = False
    request = with_data_disk(backend)
    early = crusoe.new_disk(request.name, EAST, "200GiB")
    crusoe.script.faults.append(Fault("listDisks", misses("items")))
    made = running(backend, clock, request)
    assert early.id not in {handle.id for handle in made} and list(backend.create(request)) == made
    clock.passes(10)
    assert CrusoeProvider(crusoe).existing() == {handle.id for handle in made}


def test_a_list_that_ignores_its_filter_gives_nobody_elses(
    backend: CrusoeBackend, crusoe: Crusoe, clock: Clock
) -> None:
    def unfiltered(path: tuple[str, ...], **query: str) -> Iterator[Body]:
        return listed(path, **{name: value for name, value in query.items() if not name.endswith("names")})

    others = running(backend, clock, with_data_disk(backend))
    listed = backend._client.listed
    backend._client.listed = unfiltered  # type: ignore[method-assign,assignment]
    made = list(backend.create(with_data_disk(backend, "two")))
    assert {handle.id for handle in made}.isdisjoint(handle.id for handle in others)


def test_an_answer_that_is_lost_isnt_asked_for_twice(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock) -> None:
    request = with_data_disk(backend)
    for operation in ("createDisk", "createInstance"):
        crusoe.script.faults.append(Fault(operation, Cut, when="after"))
        with pytest.raises(Transient):
            list(backend.create(request))
        clock.passes(10)
    made = list(backend.create(request))
    assert {handle.id for handle in made} == CrusoeProvider(crusoe).existing()


def test_what_a_creation_that_failed_at_once_left_is_removed(
    backend: CrusoeBackend, crusoe: Crusoe, clock: Clock
) -> None:
    """Its answer says so already, and names what it began to make."""
    request = with_data_disk(backend)
    crusoe.fails = 0
    crusoe.short.add(CPU)
    made = list(backend.create(request))
    assert [handle.kind for handle in made] == ["disk", "vm"]
    clock.passes(10)
    with pytest.raises(Gone, match=f"Crusoe has no {CPU} left in {EAST}") as gone:
        backend.describe(made)
    assert gone.value.refused is InsufficientCapacity
    crusoe.failing = "storage quota exceeded"
    making = backend.create(with_data_disk(backend, "two"))
    assert next(making).kind == "disk"
    with pytest.raises(QuotaExceeded, match="storage quota exceeded"):
        next(making)
    assert len(vms(crusoe)) == 0
    crusoe.failing = "storage quota exceeded"
    volume = backend.create_volume(volume_request(EAST))
    with pytest.raises(Gone) as gone:
        backend.describe_volume(volume)
    assert gone.value.refused is QuotaExceeded


def test_no_step_is_longer_than_half_of_what_a_creation_may_take(crusoe: Crusoe, clock: Clock, tmp_path: Path) -> None:
    """Until its creation is sent and answered, by the deadlines of its calls."""
    taken: list[float] = []

    def send(call: RestCall, deadline: float) -> RestAnswer:
        taken.append(deadline)
        return sender(crusoe)(call, deadline)

    of_calls = CrusoeClient(CONFIG.creds, CONFIG.project_id, clock.now, send=send)
    backend = CrusoeBackend(CONFIG, of_calls, clock.now, prices(tmp_path))
    for request in (with_data_disk(backend), request_for(offered(backend, H100), "two")):
        taken.clear()
        for _ in backend.create(request):
            assert 0 < sum(taken) <= FACTS.create_timeout / 2 / SECOND
            taken.clear()
