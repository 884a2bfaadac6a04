"""The API for agents. It has a Function URL, because API Gateway would cost more than the rest of the control plane.
Where Lambda has no such URLs it has an HTTP API.

It serves agents' routes only, and the health check, by which a host that is added knows the server at this address.
Users' calls go through API Gateway, which has throttling and access logs.
"""

from __future__ import annotations

import base64
from typing import Any

from chalicelib.api import dispatch
from chalicelib.api.route import of_hosts
from chalicelib.api.signpost import answer as moved
from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    """Passes the event of either (payload format 2.0) to the dispatcher that every request goes through."""
    http = event["requestContext"]["http"]
    raw = event.get("body") or ""
    body = base64.b64decode(raw) if event.get("isBase64Encoded") else raw.encode()
    request = dispatch.Request(
        method=http["method"],
        path=event["rawPath"],
        query=event.get("queryStringParameters") or {},
        headers={name.lower(): value for name, value in event.get("headers", {}).items()},
        body=body,
    )
    here = root or lambda_.any_root()
    fence = here.fence()
    reply = dispatch.answer(here.plane, request, of_hosts) if fence is None else moved(here.plane, fence, request)
    return {
        "statusCode": reply.status,
        "headers": dict(reply.headers),
        "body": base64.b64encode(reply.body).decode(),
        "isBase64Encoded": True,
    }
