"""Names that say when a resource was created."""

from __future__ import annotations

import pytest

from chalicelib.backends.kit.dated_names import CYCLE, STEP, dated, read
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import MINUTE, SECOND, from_iso
from chalicelib.domain.owner import LONGEST, OwnedKind, Owner

OWNER = Owner(OwnedKind.instance, derive("a", "install"), derive("a", "project"), derive("a", "instance"), 7).name
NOW = 1_795_000_000 * SECOND + 123


@pytest.mark.parametrize("age", [0, SECOND, MINUTE, 60 * MINUTE, STEP * CYCLE - 61 * MINUTE])
def test_the_time_is_the_same_whenever_it_is_read(age: int) -> None:
    name = dated(OWNER, NOW, "us-east")
    found = read(name, NOW + age)
    assert found is not None and found.owner == OWNER and len(name) == LONGEST + 3
    assert found == read(name, NOW)
    assert 0 < from_iso(found.created) - NOW <= STEP, "never before it was created"


def test_a_clock_that_is_ahead_makes_it_new_and_not_old() -> None:
    found = read(dated(OWNER, NOW + 10 * MINUTE, ""), NOW)
    assert found is not None and from_iso(found.created) > NOW


def test_the_region_is_known_as_far_as_a_digit_goes() -> None:
    found = read(dated(OWNER, NOW, "us-east"), NOW)
    assert found is not None
    assert found.may_be_in("us-east") and found.may_be_in("") and not found.may_be_in("us-west")


@pytest.mark.parametrize("name", ["", "web", OWNER, f"{OWNER}-ab", f"{OWNER}abcd", f"{OWNER}ABC"])
def test_other_names_are_not_ours(name: str) -> None:
    assert read(name, NOW) is None
