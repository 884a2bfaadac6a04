"""What belongs to nobody, and what only looks like it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import SECOND
from chalicelib.planning.orphans import orphans
from tests.planning import building as b

LAG = 10 * SECOND


@dataclass(frozen=True)
class Found:
    install: str = "ours"
    instance_id: str = "one"
    epoch: int = 0


def owner(**changes: object) -> Instance:
    fields = {"id": "one", "project_id": "p", "fleet_id": "f", "fleet_name": "cloud", "num": 0, "name": "cloud-0"}
    given = {"offer": b.offer(), "created_at": b.NOW, "last_processed_at": b.NOW, **fields, **changes}
    return Instance.model_validate(given)


def judged(found: Found, *owners: Instance, now: int = b.NOW) -> bool:
    known = {instance.id: instance for instance in owners}
    return orphans([found], known, install_id="ours", now=now, lag=LAG) == [found]


@pytest.mark.parametrize("status", [status for status in InstanceStatus if status != "terminated"])
def test_what_a_living_instance_has_is_its_own(status: InstanceStatus) -> None:
    assert not judged(Found(), owner(status=status), now=b.NOW + 100 * LAG)


def test_a_tag_that_names_no_instance_is_nobodys() -> None:
    assert judged(Found())


def test_another_installs_resources_are_never_touched() -> None:
    assert not judged(Found(install="theirs"))
    ended = owner(status="terminated", finished_at=b.NOW)
    assert not judged(Found(install="theirs"), ended, now=b.NOW + 100 * LAG)


def test_what_an_ended_instance_left_is_nobodys_once_the_listing_must_have_caught_up() -> None:
    ended = owner(status="terminated", finished_at=b.NOW)
    assert not judged(Found(), ended, now=b.NOW + LAG - 1)
    assert judged(Found(), ended, now=b.NOW + LAG)


def test_an_earlier_purchase_is_nobodys_and_a_later_one_isnt_judged() -> None:
    assert judged(Found(epoch=0), owner(epoch=1))
    ended = owner(status="terminated", finished_at=b.NOW)
    assert not judged(Found(epoch=1), ended, now=b.NOW + 100 * LAG)
