"""Passes: woken by hints from SQS, and by the one-minute schedule for whatever is due."""

from __future__ import annotations

import json
from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    """An SQS batch carries hints; any other event is the schedule. Both run the same pass."""
    units = {unit for record in event.get("Records", ()) for unit in json.loads(record["body"])["units"]}
    (root or lambda_.root()).reconciler.run(units)
    return {"batchItemFailures": []}
