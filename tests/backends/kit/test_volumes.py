"""What happens to volumes at every provider."""

from __future__ import annotations

import pytest

from chalicelib.backends.kit.volumes import DiskPrices, check_place, check_unused, disk, machine_of, running
from chalicelib.domain.instances import Handle
from chalicelib.domain.volumes import Device
from chalicelib.errors import Gone, InUse, NotYet, Transient, Unfit
from tests.backends.clock import Clock

HANDLE = Handle(kind="volume", id="d", data={"region": "north", "zone": "north-1"})
DEVICE = Device(by_id="virtio-d")


def test_a_disk_is_in_use_from_the_request_until_it_has_left_its_last_machine() -> None:
    assert disk(HANDLE, "available", 10, {}).state == "available"
    found = disk(HANDLE, "available", 10, {"b": DEVICE, "a": None, "c": DEVICE}, price=2.5)
    assert (found.state, found.price) == ("in_use", 2.5)
    assert found.attached_to == (("b", DEVICE), ("c", DEVICE)) and found.attaching_to == ("a",)
    assert disk(HANDLE, "deleting", 10, {"a": None}).state == "deleting"


def test_a_volume_is_for_the_machine_itself() -> None:
    vm = Handle(kind="vm", id="m", data={})
    assert machine_of([Handle(kind="address", id="a", data={}), vm]) == vm
    with pytest.raises(Unfit, match="no handle"):
        machine_of([Handle(kind="address", id="a", data={})])


@pytest.mark.parametrize(
    ("state", "is_fresh", "error", "text"),
    [
        (None, True, NotYet, "m doesn't show yet"),
        (None, False, Unfit, "no machine m"),
        ("starting", False, NotYet, "m is still starting"),
        ("stopped", False, Unfit, "m is stopped"),
    ],
)
def test_nothing_is_attached_to_a_machine_that_doesnt_run(
    state: str | None, is_fresh: bool, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        running("m", state, str, ("starting",), ("running",), is_fresh=is_fresh)


def test_a_machine_that_runs_is_returned() -> None:
    assert running("m", "running", str, ("starting",), ("running", "repairing")) == "running"


def test_users_and_place_of_a_volume() -> None:
    check_unused("d", [])
    with pytest.raises(InUse, match=r"Volume d is attached to a, b\."):
        check_unused("d", {"b", "a"})
    check_place("d", "north", "", HANDLE)
    check_place("d", "north", "north-1", HANDLE)
    for region, zone in (("south", ""), ("north", "north-2")):
        with pytest.raises(Gone, match=f"isn't in {zone or region}: it is in north-1"):
            check_place("d", region, zone, HANDLE)


def test_no_volume_waits_for_a_price_again_and_again() -> None:
    asked: list[tuple[str, str, int]] = []

    def ask(kind: str, place: str, gib: int) -> float | None:
        asked.append((kind, place, gib))
        if place == "south":
            raise Transient("no answer")
        return gib / 3

    clock = Clock()
    prices = DiskPrices(clock.now, ask)
    for _ in range(3):
        assert (prices.of("ssd", "north", 10), prices.of("ssd", "south", 10)) == (3.333333, None)
    assert asked == [("ssd", "north", 10), ("ssd", "south", 10)]
    clock.passes(3600)
    prices.of("ssd", "south", 10)
    assert len(asked) == 3, "it may be known by now"
