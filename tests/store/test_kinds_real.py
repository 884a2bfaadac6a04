"""A noun that is new to the table of nouns, on DynamoDB: it lives there as in the other stores."""

from __future__ import annotations

from chalicelib.store.dynamo import DynamoStore
from tests.engine.leases import LeaseStatus
from tests.engine.test_kinds import live
from tests.engine.test_volumes import volume_lives
from tests.store.conftest import TABLE
from tests.world.engine import Engine
from tests.world.volumes import Stage


def test_a_new_noun_lives_on_dynamodb(table: str) -> None:
    store = DynamoStore(TABLE)
    place = Engine.in_memory(store=store)
    assert table == TABLE
    assert live(place).status is LeaseStatus.closed
    store.close()


def test_a_volume_lives_on_dynamodb(table: str) -> None:
    store = DynamoStore(table)
    volume_lives(Stage(store=store))
    store.close()
