"""Announces state changes on the stage's bus: what the table's stream brings of the event log."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    """A batch of the stream. Lambda brings it again from the record that is named."""
    again = (root or lambda_.root()).publish(event["Records"])
    return {"batchItemFailures": [{"itemIdentifier": number} for number in again]}
