"""First sights on DynamoDB: written, read, replaced and left to expire as in the other stores."""

from __future__ import annotations

from chalicelib.store.dynamo import DynamoStore
from tests.engine.test_sweep import Scene, sweep_twice
from tests.store.conftest import TABLE


def test_two_sweeps_agree_on_dynamodb(table: str) -> None:
    assert table == TABLE
    store = DynamoStore(TABLE)
    sweep_twice(Scene(store=store))
    store.close()
