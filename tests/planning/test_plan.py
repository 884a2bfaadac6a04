"""A plan that writes nothing and acts on nothing has found nothing to do."""

from __future__ import annotations

import pytest

from chalicelib.planning.plan import Plan, Step
from chalicelib.planning.purchases import Describe
from tests.world import nouns as b


@pytest.mark.parametrize(
    ("steps", "empty"),
    [
        ((), True),
        ((Step(wake=("run/1",)),), True),
        ((Step(), Step(saves=(b.run(),))), False),
        ((Step(effects=(Describe("instance/1", "aws", 0),)),), False),
    ],
)
def test_what_an_empty_plan_is(steps: tuple[Step, ...], empty: bool) -> None:
    assert Plan(steps).empty is empty
