"""Passes: woken by hints from SQS, and by the one-minute schedule for whatever is due."""

from __future__ import annotations

import json
from typing import Any

from chalicelib.runtime import lambda_


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """An SQS batch carries hints; any other event is the schedule. Both run the same pass."""
    units = {unit for record in event.get("Records", ()) for unit in json.loads(record["body"])["units"]}
    lambda_.reconciler().run(units)
    return {"batchItemFailures": []}
