"""What stays in a stage's bucket: what is deployed, and what somebody else may be about to deploy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from infra.uploads import LONGEST, UNDER, touch, unused, upload_times

NOW = datetime(2026, 11, 23, tzinfo=UTC)


class Bucket:
    """S3, with pages of two."""

    def __init__(self, **since: timedelta) -> None:
        self.there = {f"{UNDER}{name}": NOW - age for name, age in since.items()}

    def list_objects_v2(self, Bucket: str, Prefix: str, ContinuationToken: str = "0") -> dict[str, Any]:
        start = int(ContinuationToken)
        names = sorted(name for name in self.there if name.startswith(Prefix))
        page = [{"Key": name, "LastModified": self.there[name]} for name in names[start : start + 2]]
        more = {"NextContinuationToken": str(start + 2)} if start + 2 < len(names) else {}
        return {"Contents": page, "IsTruncated": bool(more), **more}

    def copy_object(self, Bucket: str, Key: str, CopySource: dict[str, str], MetadataDirective: str) -> None:
        assert CopySource == {"Bucket": Bucket, "Key": Key} and MetadataDirective == "REPLACE"
        self.there[Key] = NOW


def test_another_deployers_code_is_left_until_nobody_can_be_deploying_it() -> None:
    hour, old = timedelta(hours=1), LONGEST + timedelta(hours=1)
    bucket = Bucket(mine=old, theirs=hour, before=old, again=old, long_ago=10 * old)
    touch(bucket, "b", f"{UNDER}again")  # they deploy what was deployed once
    found = upload_times(bucket, "b")
    assert set(found) == set(bucket.there), "of every page"
    assert unused(found, {f"{UNDER}mine"}, NOW) == [f"{UNDER}before", f"{UNDER}long_ago"]
