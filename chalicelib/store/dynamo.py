"""The store in one DynamoDB table, through PynamoDB.

A commit is one TransactWriteItems under a client token. If its outcome is unknown (a lost response, a time-out, a 5xx),
the same request is sent again: within ten minutes DynamoDB applies a token's writes only once, and our retries end long
before that. Each item also records the token that wrote it, so a condition that fails because of our own earlier write
is recognised. A request that met contention (another transaction holds an item) has written nothing and is retried
after a growing pause; only a failed condition is a Conflict.

The cheapest calls are used throughout (`store/request_units.py` has the arithmetic). A commit of one change with a
condition is a PutItem or DeleteItem, half the price of a transaction. The two indexes contain only keys, so a change of
status that changes no index key doesn't write them; the records that they list are then read from the table, and left
out if they have changed their place.

The due index is sparse (items without a time aren't in it) and sharded, because a partition takes only 1,000 writes a
second: the shard's number, sorted by time. All kinds share it, so a pass with nothing to do reads as often as there are
shards.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from typing import Any

from chalicelib.domain.instants import Micros
from chalicelib.domain.keys import Due, Key, due
from chalicelib.errors import Conflict, DstackError, Invalid, Refused
from chalicelib.store import cursors
from chalicelib.store.packing import packed, unpacked
from chalicelib.store.port import Change, Check, Delete, Index, Page, Put, Record, shard_of, validate
from chalicelib.store.request_units import alone

TRIES = 12
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 2.0  # seconds; all pauses together stay under 15 s

AGAIN = "Check whether it was made, then try again."

Row = dict[str, Any]  # an item's values by attribute name
_SORTS: dict[Index, str] = {"main": "sk", "gsi1": "sort1", "gsi2": "sort2"}

TTL: dict[str, Any] = {"AttributeName": "expires_at", "Enabled": True}

_NOTHING_WRITTEN = {
    "TransactionConflict",
    "TransactionConflictException",
    "ThrottlingError",
    "ThrottlingException",
    "ProvisionedThroughputExceeded",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
}
_UNKNOWN = {
    "TransactionInProgressException",
    "InternalServerError",
    "InternalServerErrorException",
    "ServiceUnavailable",
}


def table_schema() -> dict[str, Any]:
    """The table without its name, in the format of CreateTable and of CloudFormation's AWS::DynamoDB::Table."""

    def index(name: str, partition: str, sort: str, projection: dict[str, Any]) -> dict[str, Any]:
        keys = [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]
        return {"IndexName": name, "KeySchema": keys, "Projection": projection}

    keys_alone = {"ProjectionType": "KEYS_ONLY"}
    unit = {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["due_unit"]}
    texts = ("pk", "sk", "partition1", "sort1", "partition2", "sort2", "due_lane")
    types = [{"AttributeName": name, "AttributeType": "S"} for name in texts]
    return {
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        "AttributeDefinitions": [*types, {"AttributeName": "due_at", "AttributeType": "N"}],
        "GlobalSecondaryIndexes": [
            index("gsi1", "partition1", "sort1", keys_alone),
            index("gsi2", "partition2", "sort2", keys_alone),
            index("due", "due_lane", "due_at", unit),
        ],
    }


def create_table(client: Any, table_name: str) -> None:
    """Create the table with boto3's DynamoDB client and wait until it is active. For tests and trials: in AWS the
    stateful stack creates it."""
    client.create_table(TableName=table_name, **table_schema())
    client.get_waiter("table_exists").wait(TableName=table_name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    client.update_time_to_live(TableName=table_name, TimeToLiveSpecification=TTL)


@cache
def _prepare_sessions() -> None:
    """Make new sessions send the table's calls through `dynamo_calls`, with a fixed user agent: botocore composes its
    own for each call, which takes a seventh of the call's CPU."""
    import botocore
    from botocore.config import Config

    from chalicelib.store.dynamo_calls import take_over

    config = Config(user_agent="dstack-serverless")
    botocore.register_initializer(lambda session: session.set_default_client_config(config))
    botocore.register_initializer(take_over)


class DynamoStore:
    """`Store` in the table `table_name`. botocore finds the credentials, region and endpoint."""

    def __init__(
        self,
        table_name: str,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
        new_token: Callable[[], str] = lambda: secrets.token_urlsafe(18),
    ) -> None:
        _prepare_sessions()
        self._table_name = table_name
        self._item = _item_class(table_name, region, endpoint)
        self._sleep, self._jitter, self._new_token = sleep, jitter, new_token

    def get(self, key: Key) -> Record | None:
        from pynamodb.exceptions import DoesNotExist

        try:
            return _record(self._read(lambda: self._item.get(key.pk, key.sk, consistent_read=True)))
        except DoesNotExist:
            return None

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        pairs = [tuple(key) for key in keys]
        rows = self._read(lambda: list(self._item.batch_get(pairs, consistent_read=True)))
        found = {record.key: record for record in map(_record, rows)}
        return [found.get(key) for key in keys]

    def query(
        self,
        index: Index,
        partition: str,
        *,
        low: str = "",
        high: str = "",
        limit: int = 100,
        cursor: str | None = None,
        reverse: bool = False,
    ) -> Page:
        if limit < 1:
            raise Invalid(f"a page of {limit} records.", hint="Ask for at least one.")
        start = None if cursor is None else cursors.decode(cursor, index, partition)
        if start is not None and not (start[0] >= low and (not high or start[0] < high)):
            # DynamoDB refuses a start outside the bounds. One before them starts at the bound, one after them ends.
            before = start[0] >= low if reverse else start[0] < low
            if not before:
                return Page((), None)
            start = None
        if high and low >= high:
            return Page((), None)
        count = limit + (2 if high else 1)  # one to see whether there is more; one may be `high` itself
        rows = self._list(index, partition, low, high, count, start, reverse)
        if high:
            rows = [row for row in rows if _place(index, row)[0] < high]
        more = cursors.of(index, partition, _place(index, rows[limit - 1])) if len(rows) > limit else None
        if index == "main":
            return Page(tuple(map(_record, rows[:limit])), more)
        return Page(tuple(self._listed(index, partition, [_place(index, row) for row in rows[:limit]])), more)

    def _listed(self, index: Index, partition: str, places: Sequence[cursors.Position]) -> list[Record]:
        """The table's records that an index lists, in the index's order."""
        if not places:
            return []
        rows = self._read(lambda: list(self._item.batch_get([place[1:] for place in places])))
        found = {record.key: record for record in map(_record, rows)}
        here = [(place, found.get(Key(*place[1:]))) for place in places]
        entries = ((record, (partition, place[0])) for place, record in here if record is not None)
        return [record for record, entry in entries if getattr(record, index) == entry]

    def scan(self, after: Key | None = None, *, limit: int = 500) -> list[Record]:
        last = None if after is None else {"pk": {"S": after.pk}, "sk": {"S": after.sk}}
        item = self._item
        rows = self._read(lambda: list(item.scan(limit=limit, last_evaluated_key=last, consistent_read=True)))
        return [_record(row) for row in rows]

    def commit(self, changes: Sequence[Change]) -> None:
        validate(changes)
        if not changes:
            return
        ordered, one = sorted(changes, key=_place_in_request), alone(changes)
        token = self._new_token()
        sure = True
        for attempt in range(TRIES):
            self._pause(attempt)
            outcome = self._try(ordered, token) if one is None else self._try_alone(one, token, sure)
            if outcome is None:
                return
            sure = sure and outcome in _NOTHING_WRITTEN
        held = "was busy" if sure else "didn't answer, so the change may or may not have been made"
        raise Refused(f"The table {self._table_name} {held} ({TRIES} tries).", hint=AGAIN)

    def due(self, kinds: Sequence[str], shard: int, now: Micros, limit: int) -> list[Due]:
        item, lane = self._item, str(shard)

        def earliest() -> list[Due]:
            rows = item.query(lane, item.due_at <= now, index_name="due", page_size=limit)
            found = (due(row["due_unit"], int(row["due_at"])) for row in rows)
            return list(islice((each for each in found if each and each.kind in kinds), limit))

        listed: list[Due] = self._read(earliest)
        return listed

    def next_due(self) -> Micros | None:
        """Always 0: checking would cost a read per shard, so the schedule sets the pace."""
        return 0

    def close(self) -> None:
        """Do nothing: connections belong to botocore's pool and end with the process."""

    def _list(
        self,
        index: Index,
        partition: str,
        low: str,
        high: str,
        limit: int,
        start: cursors.Position | None,
        reverse: bool,
    ) -> list[Any]:
        item = self._item
        names = {"main": "pk", "gsi1": "partition1", "gsi2": "partition2"}[index], _SORTS[index]
        sort = getattr(item, names[1])
        bounds = None
        if low and high:
            bounds = sort.between(low, high)
        elif low:
            bounds = sort >= low
        elif high:
            bounds = sort < high
        last = None
        if start is not None:
            place = {names[0]: partition, names[1]: start[0], "pk": start[1], "sk": start[2]}
            last = {name: {"S": text} for name, text in place.items()}
        found: list[Any] = self._read(
            lambda: list(
                item.query(
                    partition,
                    bounds,
                    index_name=None if index == "main" else index,
                    consistent_read=index == "main",
                    scan_index_forward=not reverse,
                    limit=limit,
                    last_evaluated_key=last,
                )
            )
        )
        return found

    def _read(self, read: Callable[[], Any]) -> Any:
        from pynamodb.exceptions import DoesNotExist, PynamoDBException

        for attempt in range(TRIES):
            self._pause(attempt)
            try:
                return read()
            except DoesNotExist:
                raise
            except PynamoDBException as error:
                if _passing(error) is None:
                    raise self._refused(error) from error
        raise Refused(f"The table {self._table_name} didn't answer ({TRIES} tries).", hint="Try again in a moment.")

    def _pause(self, attempt: int) -> None:
        if attempt:
            longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**attempt)
            self._sleep(longest * (0.5 + self._jitter() / 2))

    def _try(self, ordered: Sequence[Change], token: str) -> str | None:
        """Send the commit once. None: it is written. A code: the reason to send it again. Raises errors that a retry
        can't resolve."""
        from pynamodb.exceptions import TransactWriteError

        try:
            self._send(ordered, token)
            return None
        except TransactWriteError as error:
            passing = _passing(error)
            if passing is not None:
                return passing
            reasons = list(error.cancellation_reasons)
            for reason in reasons:
                if reason is not None and (reason.raw_item or {}).get("token") == {"S": token}:
                    return None  # our own earlier write
            for change, reason in zip(ordered, reasons, strict=False):
                if reason is not None and reason.code == "ConditionalCheckFailed":
                    raise Conflict(str(change.key)) from error
            codes: list[str] = [reason.code for reason in reasons if reason is not None]
            if codes and all(code in _NOTHING_WRITTEN for code in codes):
                return codes[0]
            raise self._refused(error) from error

    def _try_alone(self, change: Put | Delete, token: str, sure: bool) -> str | None:
        """The same for one change. `sure`: earlier tries have certainly written nothing."""
        from pynamodb.exceptions import DeleteError, PutError

        item, key = self._item, change.key
        condition = item.pk.does_not_exist() if change.expect == 0 else item.version == change.expect
        try:
            if isinstance(change, Put):
                _row(item, change.record, token).save(condition)
            else:
                item(key.pk, key.sk).delete(condition)
            return None
        except (PutError, DeleteError) as error:
            if _code(error) == "ConditionalCheckFailedException":
                if sure or not self._written_before(change, token):
                    raise Conflict(str(key)) from error
                return None
            passing = _passing(error)
            if passing is None:
                raise self._refused(error) from error
            return passing

    def _written_before(self, change: Put | Delete, token: str) -> bool:
        """Whether an earlier try with an unknown outcome wrote this change. Unlike for transactions, DynamoDB doesn't
        report the token, but the item shows it unless somebody has written it since."""
        from pynamodb.exceptions import DoesNotExist

        key = change.key
        try:
            found = self._read(lambda: self._item.get(key.pk, key.sk, consistent_read=True))
        except DoesNotExist:
            found = None
        if isinstance(change, Delete):
            if found is None:
                return True  # it is deleted, by this process or another
        elif found is not None and found["token"] == token:
            return True
        elif found is not None and int(found["version"]) <= change.record.version:
            return False  # somebody else wrote this very version
        raise Refused(f"{key} was changed at the same time, so this change may or may not have been made.", hint=AGAIN)

    def _send(self, ordered: Sequence[Change], token: str) -> None:
        from pynamodb.transactions import TransactWrite

        item = self._item
        connection = item._get_connection().connection
        with TransactWrite(connection=connection, client_request_token=token) as transaction:
            for change in ordered:
                expect = change.expect
                condition = None
                if expect is not None:
                    condition = item.pk.does_not_exist() if expect == 0 else item.version == expect
                if isinstance(change, Put):
                    transaction.save(_row(item, change.record, token), condition, return_values="ALL_OLD")
                elif isinstance(change, Delete):
                    transaction.delete(item(change.key.pk, change.key.sk), condition)
                else:
                    transaction.condition_check(item, change.key.pk, change.key.sk, condition)

    def _refused(self, error: Any) -> DstackError:
        hints = {
            "ResourceNotFoundException": "Create the table, or correct its name and region.",
            "AccessDeniedException": "Allow the operation in the function's policy.",
            "UnrecognizedClientException": "Check the credentials.",
            "ExpiredTokenException": "Renew the credentials.",
        }
        return Refused(
            f"The table {self._table_name} refused: {error.cause or error}.", hint=hints.get(_code(error), "")
        )


def _passing(error: Any) -> str | None:
    """The reason why the same request may succeed if sent again; None if it can't."""
    from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

    if isinstance(error.cause, ConnectionError | HTTPClientError):
        return "no answer"
    code = _code(error)
    if code in _NOTHING_WRITTEN or code in _UNKNOWN:
        return code
    if isinstance(error.cause, ClientError) and code.startswith("5"):
        return code  # a 5xx without a body has the number as its code
    return None


def _code(error: Any) -> str:
    """PynamoDB's `cause_response_code` fails on a broken connection, whose response is None."""
    response = getattr(error.cause, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def _place_in_request(change: Change) -> int:
    """PynamoDB sends checks, then deletes, then puts; cancellation reasons come back in that order."""
    return 0 if isinstance(change, Check) else 1 if isinstance(change, Delete) else 2


def _item_class(table_name: str, region: str | None, endpoint: str | None) -> Any:
    """The model of one table. Created with the store, because PynamoDB ties a class to its table, and because importing
    PynamoDB costs 0.2 s that some functions needn't pay."""
    from pynamodb.attributes import BinaryAttribute, NumberAttribute, UnicodeAttribute
    from pynamodb.indexes import GlobalSecondaryIndex, IncludeProjection, KeysOnlyProjection
    from pynamodb.models import Model

    # A query needs only an index's partition key here; its sort key is an attribute of the items like any other.
    class Gsi1(GlobalSecondaryIndex):  # type: ignore[misc]
        class Meta:
            index_name = "gsi1"
            projection = KeysOnlyProjection()

        partition1 = UnicodeAttribute(hash_key=True)

    class Gsi2(GlobalSecondaryIndex):  # type: ignore[misc]
        class Meta:
            index_name = "gsi2"
            projection = KeysOnlyProjection()

        partition2 = UnicodeAttribute(hash_key=True)

    class DueIndex(GlobalSecondaryIndex):  # type: ignore[misc]
        class Meta:
            index_name = "due"
            projection = IncludeProjection(["due_unit"])

        due_lane = UnicodeAttribute(hash_key=True)

    class Item(Model):  # type: ignore[misc]
        class Meta:
            connect_timeout_seconds = 3
            read_timeout_seconds = 10
            max_retry_attempts = 0  # we count the tries ourselves, and a test can set the pauses
            max_pool_connections = 32

        pk = UnicodeAttribute(hash_key=True)
        sk = UnicodeAttribute(range_key=True)
        version = NumberAttribute()
        body = UnicodeAttribute(null=True)
        packed = BinaryAttribute(null=True, legacy_encoding=False)  # the body, if it is large
        token = UnicodeAttribute()
        partition1 = UnicodeAttribute(null=True)
        sort1 = UnicodeAttribute(null=True)
        partition2 = UnicodeAttribute(null=True)
        sort2 = UnicodeAttribute(null=True)
        due_lane = UnicodeAttribute(null=True)
        due_at = NumberAttribute(null=True)
        due_kind = UnicodeAttribute(null=True)
        due_unit = UnicodeAttribute(null=True)
        expires_at = NumberAttribute(null=True)
        by_gsi1, by_gsi2, by_due = Gsi1(), Gsi2(), DueIndex()

        @classmethod
        def from_raw_data(cls, data: dict[str, dict[str, Any]]) -> Row:
            """Return plain values, because building a model for each item would cost as much as the call."""
            return {name: value for name, typed in data.items() for value in typed.values()}

    Item.Meta.table_name, Item.Meta.region, Item.Meta.host = table_name, region, endpoint  # type: ignore[attr-defined]
    return Item


def _place(index: Index, row: Row) -> cursors.Position:
    return (row[_SORTS[index]], row["pk"], row["sk"])


def _row(item: Any, record: Record, token: str) -> Any:
    row = item(record.key.pk, record.key.sk, version=record.version, token=token)
    row.packed = packed(record.body)
    row.body = None if row.packed else record.body.decode()
    if record.gsi1 is not None:
        row.partition1, row.sort1 = record.gsi1
    if record.gsi2 is not None:
        row.partition2, row.sort2 = record.gsi2
    if record.due is not None:
        row.due_kind, row.due_unit, row.due_at = record.due
        row.due_lane = str(shard_of(record.due.unit))
    row.expires_at = record.expires_at
    return row


def _record(row: Row) -> Record:
    due_at, expires_at = row.get("due_at"), row.get("expires_at")
    return Record(
        Key(row["pk"], row["sk"]),
        int(row["version"]),
        unpacked(row["packed"]) if "packed" in row else row["body"].encode(),
        (row["partition1"], row["sort1"]) if "partition1" in row else None,
        (row["partition2"], row["sort2"]) if "partition2" in row else None,
        None if due_at is None else Due(row["due_kind"], row["due_unit"], int(due_at)),
        None if expires_at is None else int(expires_at),
    )
