"""The journey of `make e2e-aws` without its longer stages, a test a stage: one deployment for all (`conftest.py`), and
each stage goes on from the one before."""

from __future__ import annotations

import pytest

from tests.e2e.aws.journey import Journey, Stage
from tests.e2e.aws.stages import SHORT


@pytest.mark.parametrize("stage", SHORT, ids=lambda stage: str(stage.__name__))
def test_what_is_deployed_works(stage: Stage, trip: Journey) -> None:
    stage(trip)
