"""Each cloud that sells machines has its journey."""

from __future__ import annotations

from chalicelib.backends.registry import built, facts_of
from tests.e2e.clouds.cloud import CLOUDS


def test_every_cloud_that_sells_machines_has_its_journey() -> None:
    assert {name for name in built() if not facts_of(name).containers} == {*CLOUDS}
