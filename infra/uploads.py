"""What deployments upload to a stage's bucket, and when it may be deleted.

Two people may deploy one stage at once, and CloudFormation reads their uploads only later. So a deployment renews the
time of everything that it is about to deploy, even if somebody else uploaded it, and only files that are older than any
deployment can last are deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

UNDER = "deploy/"  # the prefix of code and templates in the bucket
LONGEST = timedelta(days=1)  # the longest deployment, including the wait for confirmation


def upload_times(s3: Any, bucket: str) -> dict[str, datetime]:
    """Every upload, with its time."""
    found: dict[str, datetime] = {}
    parameters: dict[str, Any] = {"Bucket": bucket, "Prefix": UNDER}
    while True:
        page = s3.list_objects_v2(**parameters)
        found |= {one["Key"]: one["LastModified"] for one in page.get("Contents", ())}
        if not page.get("IsTruncated"):
            return found
        parameters["ContinuationToken"] = page["NextContinuationToken"]


def touch(s3: Any, bucket: str, key: str) -> None:
    """Sets an upload's time to now."""
    source = {"Bucket": bucket, "Key": key}
    s3.copy_object(Bucket=bucket, Key=key, CopySource=source, MetadataDirective="REPLACE")


def unused(found: Mapping[str, datetime], current: Collection[str], now: datetime) -> list[str]:
    """The uploads that aren't deployed, and that no deployment in progress can need."""
    return sorted(key for key, since in found.items() if key not in current and now - since > LONGEST)
