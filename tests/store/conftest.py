from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chalicelib.store.dynamo import create_table
from tests.emulators.ministack import Emulator

TABLE = "plane"


@pytest.fixture(scope="module")
def aws(emulator: Emulator) -> Iterator[Emulator]:
    """Taken for AWS by this process too, since code finds its credentials where botocore looks for them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in emulator.environment.items():
            patch.setenv(name, value)
        yield emulator


@pytest.fixture(scope="module")
def client(aws: Emulator) -> Any:
    return aws.client("dynamodb")


@pytest.fixture
def table(client: Any) -> str:
    """An empty table. Always of one name, so that a store, whose client takes a while to make, serves many tests."""
    if TABLE in client.list_tables()["TableNames"]:
        client.delete_table(TableName=TABLE)
    create_table(client, TABLE)
    return TABLE
