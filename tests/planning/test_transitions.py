"""What a draft does with a noun beyond its status."""

from __future__ import annotations

from chalicelib.domain.instances import InstanceStatus
from chalicelib.planning.transitions import Draft
from tests.world import nouns as b


def test_whoever_holds_no_place_gives_none_back() -> None:
    draft, instance = Draft(b.NOW), b.machine(0, status=InstanceStatus.idle)
    assert draft.release(instance, "somebody-elses") is instance
    assert draft.empty
