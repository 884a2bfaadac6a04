"""Effects: a committed plan's calls to a cloud. The only function that needs the clouds' SDKs."""

from __future__ import annotations

import json
import logging
from typing import Any

from chalicelib.engine.effects.table import from_message
from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root

log = logging.getLogger(__name__)


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    """Each message is one effect. A failed one returns to the queue alone, without its neighbours."""
    execute, failed = (root or lambda_.root()).executor.execute, []
    for record in event["Records"]:
        try:
            execute(from_message(json.loads(record["body"])))
        except Exception:  # one bad effect must not hold back the batch; SQS redelivers it, then sets it aside
            log.exception("effect failed: %s", record["body"])
            failed.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failed}
