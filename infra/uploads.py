"""What deployments put into a stage's bucket, and when it may go.

Two people may deploy one stage at once, and each has uploaded code that CloudFormation reads only later. So what is
about to be deployed is as new as that deployment, whoever uploaded it first, and only what is older than any deployment
could be is deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

UNDER = "deploy/"  # where the bucket has code and templates
LONGEST = timedelta(days=1)  # a deployment, with somebody who has to say yes


def listed(s3: Any, bucket: str) -> dict[str, datetime]:
    """What is there, and since when."""
    found: dict[str, datetime] = {}
    asked: dict[str, Any] = {"Bucket": bucket, "Prefix": UNDER}
    while True:
        page = s3.list_objects_v2(**asked)
        found |= {one["Key"]: one["LastModified"] for one in page.get("Contents", ())}
        if not page.get("IsTruncated"):
            return found
        asked["ContinuationToken"] = page["NextContinuationToken"]


def touch(s3: Any, bucket: str, key: str) -> None:
    """As if it had been uploaded now."""
    source = {"Bucket": bucket, "Key": key}
    s3.copy_object(Bucket=bucket, Key=key, CopySource=source, MetadataDirective="REPLACE")


def unused(found: Mapping[str, datetime], current: Collection[str], now: datetime) -> list[str]:
    """What no deployment that may still be under way has, and what isn't deployed now."""
    return sorted(key for key, since in found.items() if key not in current and now - since > LONGEST)
