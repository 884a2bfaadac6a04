"""One deployment for all tests of this folder that need one: what a person makes with `make deploy`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.aws.journey import Journey, begun


@pytest.fixture(scope="package")
def trip(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journey]:
    with begun(tmp_path_factory.mktemp("aws")) as journey:
        yield journey
