"""DynamoDB, as the emulator gives it: the contract, and what only a network can do wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.keys import Key
from chalicelib.errors import Conflict, Refused
from chalicelib.store.dynamo import TRIES, DynamoStore, table_schema
from chalicelib.store.port import Change, Check, Delete, Put, Store
from tests.emulators import front as fronts
from tests.emulators.front import Front
from tests.emulators.ministack import Emulator
from tests.store.conftest import TABLE
from tests.store.contract import StoreContract, add, record

WRITE = "TransactWriteItems"
READ = "GetItem"


@pytest.fixture(scope="module")
def made(aws: Emulator) -> DynamoStore:
    return DynamoStore(TABLE)


class TestDynamo(StoreContract):
    rounds = 8

    @pytest.fixture
    def store(self, table: str, made: DynamoStore) -> Store:
        return made


# --- the network


class Pauses:
    """Counts the pauses instead of making them."""

    def __init__(self) -> None:
        self.made: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.made.append(seconds)


PAUSES = Pauses()


@pytest.fixture(scope="module")
def shared_front(aws: Emulator) -> Iterator[Front]:
    with fronts.running(aws.url) as front:
        yield front


@pytest.fixture(scope="module")
def fronted(shared_front: Front) -> DynamoStore:
    return DynamoStore(TABLE, endpoint=shared_front.url, sleep=PAUSES, jitter=lambda: 1.0)


@pytest.fixture
def front(shared_front: Front, table: str) -> Front:
    shared_front.plan.clear()
    shared_front.seen.clear()
    PAUSES.made.clear()
    return shared_front


@pytest.mark.parametrize(
    "fault", ["lose-reply", "lose-request", "InternalServerError", "TransactionInProgressException"]
)
def test_an_unknown_outcome_is_asked_again_under_the_same_token(fronted: DynamoStore, front: Front, fault: str) -> None:
    front.plan[WRITE].extend([fault] * 3)
    fronted.commit(add(record("a"), record("b")))
    assert fronted.get_many([Key("a", "status"), Key("b", "status")]) == [record("a"), record("b")]
    tokens = front.tokens(WRITE)
    assert len(tokens) == 4 and len(set(tokens)) == 1
    assert len(PAUSES.made) == 3


def test_a_lost_reply_is_no_conflict_with_oneself(fronted: DynamoStore, front: Front) -> None:
    fronted.commit(add(record("a")))
    front.plan[WRITE].append("lose-reply")
    fronted.commit([Put(record("a", version=2), 1), Check(Key("free", "x"), 0), Delete(Key("old", "x"))])
    assert fronted.get(Key("a", "status")) == record("a", version=2)


def test_ones_own_write_is_known_again_without_the_token(fronted: DynamoStore, front: Front) -> None:
    front.plan[WRITE].extend(["lose-reply", "forget-token"])
    fronted.commit(add(record("a"), record("b")))
    assert len(front.tokens(WRITE)) == 2
    assert fronted.get(Key("a", "status")) == record("a")


def test_somebody_elses_write_between_two_tries_is_a_conflict(
    fronted: DynamoStore, front: Front, made: DynamoStore
) -> None:
    front.plan[WRITE].append("lose-request")
    made.commit(add(record("a", body=b"theirs")))
    with pytest.raises(Conflict, match="a:status"):
        fronted.commit(add(record("b"), record("a", body=b"mine")))
    assert fronted.get(Key("b", "status")) is None


@pytest.mark.parametrize("fault", ["TransactionConflict", "ThrottlingException"])
def test_contention_is_waited_out(fronted: DynamoStore, front: Front, fault: str) -> None:
    front.plan[WRITE].extend([fault] * 5)
    fronted.commit(add(record("a"), record("b")))
    assert fronted.get(Key("b", "status")) == record("b")
    assert PAUSES.made == sorted(PAUSES.made) and len(PAUSES.made) == 5


def test_contention_without_end_is_told_and_nothing_is_written(fronted: DynamoStore, front: Front) -> None:
    front.plan[WRITE].extend(["TransactionConflict"] * 200)
    with pytest.raises(Refused, match="was busy"):
        fronted.commit(add(record("a"), record("b")))
    assert len(PAUSES.made) == TRIES - 1 and 12 < sum(PAUSES.made) < 13
    front.plan.clear()
    assert fronted.get(Key("a", "status")) is None


def test_silence_without_end_is_told_as_not_known(fronted: DynamoStore, front: Front) -> None:
    front.plan[WRITE].extend(["lose-reply"] * TRIES)
    with pytest.raises(Refused, match="may or may not have been made"):
        fronted.commit(add(record("a"), record("b")))
    assert fronted.get(Key("a", "status")) == record("a")


# --- one change, which needs no transaction

ALONE: list[tuple[str, Change]] = [
    ("PutItem", Put(record("a", version=2), 1)),
    ("DeleteItem", Delete(Key("a", "status"), 1)),
]


@pytest.mark.parametrize(("operation", "change"), ALONE)
@pytest.mark.parametrize("fault", ["pass", "lose-reply", "lose-request", "InternalServerError", "ThrottlingException"])
def test_one_change_is_written_once_whatever_the_network_does(
    fronted: DynamoStore, front: Front, operation: str, change: Change, fault: str
) -> None:
    fronted.commit(add(record("a")))
    front.plan[operation].append(fault)
    front.seen.clear()
    fronted.commit([change])
    assert fronted.get(Key("a", "status")) == (change.record if isinstance(change, Put) else None)
    assert WRITE not in {seen for seen, _ in front.seen}


@pytest.mark.parametrize(("operation", "change"), ALONE)
def test_one_change_without_a_condition_has_a_token_of_the_tables(
    fronted: DynamoStore, front: Front, operation: str, change: Put | Delete
) -> None:
    """Repeated without one, it would overwrite what somebody wrote after it."""
    fronted.commit([replace(change, expect=None)])
    assert [seen for seen, _ in front.seen] == [WRITE]


class Between:
    """Somebody else's commits, between two tries of a store."""

    def __init__(self, store: DynamoStore, *changes: Change) -> None:
        self._store, self._changes = store, changes

    def __call__(self, seconds: float) -> None:
        for change in self._changes:
            self._store.commit([change])
        self._changes = ()


@pytest.mark.parametrize(("fault", "raised"), [("lose-request", Conflict), ("ThrottlingException", Conflict)])
def test_somebody_who_was_faster_with_one_change_is_a_conflict(
    made: DynamoStore, front: Front, fault: str, raised: type[Exception]
) -> None:
    newer = Put(record("a", version=2, body=b"theirs"), 1)
    made.commit(add(record("a")))
    front.plan["PutItem"].append(fault)
    with pytest.raises(raised, match="a:status"):
        DynamoStore(TABLE, endpoint=front.url, sleep=Between(made, newer)).commit([Put(record("a", version=2), 1)])
    assert made.get(Key("a", "status")) == newer.record


def test_what_somebody_wrote_over_an_unknown_outcome_is_told_as_not_known(made: DynamoStore, front: Front) -> None:
    made.commit(add(record("a")))
    front.plan["PutItem"].append("lose-reply")
    store = DynamoStore(TABLE, endpoint=front.url, sleep=Between(made, Put(record("a", version=3), 2)))
    with pytest.raises(Refused, match="may or may not have been made"):
        store.commit([Put(record("a", version=2), 1)])


# --- large bodies


@pytest.mark.parametrize("length", [0, 699, 700, 701, 5000, 250_000])
def test_a_large_body_is_packed_and_a_small_one_is_there_to_read(
    client: Any, made: DynamoStore, table: str, length: int
) -> None:
    body = ('{"text": "' + "é" * (length // 2) + '"}').encode()
    made.commit(add(record("a", body=body)))
    assert made.get(Key("a", "status")) == record("a", body=body)
    (item,) = client.scan(TableName=table)["Items"]
    assert ("packed" in item) is (len(body) > 700) is ("body" not in item)


# --- what the indexes list


def test_what_an_index_lists_is_as_the_table_has_it(client: Any, made: DynamoStore, table: str) -> None:
    """They hold keys alone: a new body writes no index, and shows in both."""
    made.commit(add(record("a", gsi1=("p", "1"), gsi2=("q", "1"))))
    after = record("a", version=2, body=b'{"new": 1}', gsi1=("p", "1"), gsi2=("q", "1"))
    made.commit([Put(after, 1)])
    assert made.query("gsi1", "p").records == made.query("gsi2", "q").records == (after,)
    for index in ("gsi1", "gsi2"):
        (entry,) = client.scan(TableName=table, IndexName=index)["Items"]
        assert "body" not in entry


def test_a_read_is_asked_again(fronted: DynamoStore, front: Front) -> None:
    fronted.commit(add(record("a")))
    front.plan[READ].extend(["lose-reply", "ThrottlingException", "InternalServerError"])
    assert fronted.get(Key("a", "status")) == record("a")
    front.plan[READ].extend(["lose-reply"] * TRIES)
    with pytest.raises(Refused, match="didn't answer"):
        fronted.get(Key("a", "status"))


def test_a_condition_is_judged_before_contention(fronted: DynamoStore, front: Front) -> None:
    fronted.commit(add(record("a")))
    changes: list[Change] = [Put(record("b"), 0), Check(Key("free", "x"), 0), Delete(Key("a", "status"), 7)]
    with pytest.raises(Conflict) as raised:
        fronted.commit(changes)
    assert raised.value.key == "a:status"
    assert PAUSES.made == []


# --- what a person must mend


def test_a_table_that_is_not_there_is_named(client: Any, made: DynamoStore) -> None:
    store = DynamoStore("nowhere")
    for call in (
        lambda: store.get(Key("a", "b")),
        lambda: store.commit(add(record("a"))),
        lambda: store.query("main", "a"),
    ):
        with pytest.raises(Refused, match="nowhere"):
            call()


def test_importing_the_adapter_imports_no_sdk() -> None:
    script = "import sys\nfrom chalicelib.store import blobs, dynamo, log_blobs, seal\n"
    script += "print([name for name in ('pynamodb', 'botocore', 'boto3', 'cryptography') if name in sys.modules])"
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout == "[]\n"


# --- the table


def test_the_table_is_what_the_schema_says(client: Any, table: str) -> None:
    wanted = table_schema()
    found = client.describe_table(TableName=table)["Table"]
    assert found["KeySchema"] == wanted["KeySchema"]
    assert sorted(found["AttributeDefinitions"], key=str) == sorted(wanted["AttributeDefinitions"], key=str)
    for index, expected in zip(found["GlobalSecondaryIndexes"], wanted["GlobalSecondaryIndexes"], strict=True):
        assert {name: index[name] for name in expected} == expected
    ttl = client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
    assert (ttl["AttributeName"], ttl["TimeToLiveStatus"]) == ("expires_at", "ENABLED")


def test_the_model_and_the_schema_agree(made: DynamoStore) -> None:
    wanted = table_schema()
    assert {name: index._hash_key_attribute().attr_name for name, index in made._item._indexes.items()} == {
        index["IndexName"]: index["KeySchema"][0]["AttributeName"] for index in wanted["GlobalSecondaryIndexes"]
    }


def test_only_what_is_due_stands_in_the_due_index(client: Any, made: DynamoStore, table: str) -> None:
    from chalicelib.domain.keys import Due

    made.commit(add(record("a", due=Due("run", "run/a", 5)), record("b")))
    found = client.scan(TableName=table, IndexName="due")["Items"]
    assert [sorted(item) for item in found] == [["due_at", "due_lane", "due_unit", "pk", "sk"]]
