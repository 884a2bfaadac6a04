"""The journey of `make e2e-aws` without its longer stages, a test a stage: one deployment for all, and each stage
goes on from the one before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.aws.journey import Journey, Stage, begun
from tests.e2e.aws.stages import SHORT


@pytest.fixture(scope="module")
def trip(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journey]:
    with begun(tmp_path_factory.mktemp("aws")) as journey:
        yield journey


@pytest.mark.parametrize("stage", SHORT, ids=lambda stage: str(stage.__name__))
def test_what_is_deployed_works(stage: Stage, trip: Journey) -> None:
    stage(trip)
