"""Point-in-time recovery, which no emulator has: theirs copies a table as it is now. Here a table's items are kept at
moments, as DynamoDB keeps them at each, and a restored table gets those. All else is the emulator's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError


class Moments:
    """boto3's client of DynamoDB, in front of an emulator's. `RestoreTableToPointInTime` refuses what the service's
    model says that it refuses: a table whose recovery isn't on, and a time that isn't kept."""

    def __init__(self, dynamo: Any) -> None:
        self._dynamo = dynamo
        self._kept: dict[str, list[tuple[datetime, list[Any]]]] = {}

    def keep(self, table: str, at: datetime) -> None:
        self._kept.setdefault(table, []).append((at, list(self._items(table))))

    def restore_table_to_point_in_time(
        self, *, SourceTableName: str, TargetTableName: str, RestoreDateTime: datetime
    ) -> Any:
        found = self._dynamo.describe_continuous_backups(TableName=SourceTableName)["ContinuousBackupsDescription"]
        if found["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] != "ENABLED":
            raise _refused("PointInTimeRecoveryUnavailableException", "It isn't enabled for this table.")
        kept = [items for at, items in self._kept.get(SourceTableName, []) if at <= RestoreDateTime]
        if not kept:
            raise _refused("InvalidRestoreTimeException", "The time is before EarliestRestorableDateTime.")
        made = self._dynamo.restore_table_to_point_in_time(
            SourceTableName=SourceTableName, TargetTableName=TargetTableName, RestoreDateTime=RestoreDateTime
        )
        for item in self._items(TargetTableName):
            self._dynamo.delete_item(TableName=TargetTableName, Key={name: item[name] for name in ("pk", "sk")})
        for item in kept[-1]:
            self._dynamo.put_item(TableName=TargetTableName, Item=item)
        return made

    def _items(self, table: str) -> Iterator[Any]:
        for page in self._dynamo.get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
            yield from page["Items"]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dynamo, name)


def _refused(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "RestoreTableToPointInTime")
