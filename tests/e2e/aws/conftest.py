"""One deployment for all tests of this folder that need one: what a person makes with `make deploy`, and in it one more
artefact than the product has. The journey's last stage removes it, so its file comes last."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.aws.artefacts import SOLD, with_a_second_artefact
from tests.e2e.aws.journey import Journey, begun


@pytest.fixture(scope="package")
def trip(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journey]:
    with begun(tmp_path_factory.mktemp("aws"), with_a_second_artefact, [*SOLD.values()]) as journey:
        yield journey
