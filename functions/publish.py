"""Publishes state changes to the stage's event bus. It reads the event log from the table's stream."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    """Handles one batch of the stream. Lambda retries the batch from the record that the result names."""
    again = (root or lambda_.any_root()).publish(event["Records"])
    return {"batchItemFailures": [{"itemIdentifier": number} for number in again]}
