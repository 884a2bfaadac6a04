"""The restored moment as the emulator gives it: a copy of the table as it is. DynamoDB's copy is of an earlier moment;
here the table changes after the copy was made."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from chalicelib.domain.keys import Key
from chalicelib.store.dynamo import DynamoStore, create_table
from chalicelib.store.port import Delete, Put, Record
from infra import restore
from tests.emulators.ministack import Emulator

TABLE = "dstack-restored"


def test_a_table_goes_back_to_the_copy_of_a_moment(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in emulator.environment.items():
        monkeypatch.setenv(name, value)
    dynamo = emulator.client("dynamodb")
    create_table(dynamo, TABLE)
    live = DynamoStore(TABLE, endpoint=emulator.url)
    kept = [Record(Key("run/1", "status"), 1, b"{}", ("p", "s")), Record(Key("run/2", "status"), 4, b'{"a":1}')]
    live.commit([Put(record, expect=0) for record in kept])
    restore.make_copy(dynamo, TABLE, f"{TABLE}-then", datetime.now(UTC), 1.0)
    then = DynamoStore(f"{TABLE}-then", endpoint=emulator.url)
    live.commit([Delete(kept[0].key), Put(Record(Key("run/3", "status"), 1, b"{}"), expect=0)])
    assert restore.replace(live, then) == (1, 1)
    assert sorted(live.scan(), key=lambda record: record.key) == kept
    assert [record.key for record in live.query("gsi1", "p").records] == [kept[0].key]
