"""The Lambda behind API Gateway, and the same app embedded: every row of the route table, mounted on Chalice.

Importing this makes no client and reads no setting; the plane comes with the first request (`runtime.deps`). The
functions on a schedule stand here too, because Chalice deploys what its app names, each with a policy of its own. They
need no cloud's SDK; the functions that do, and those with other triggers, are in `infra/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chalice.app import Chalice, Response

from chalicelib.api import dispatch
from chalicelib.api.routes import ROUTES
from chalicelib.api.table import Route
from chalicelib.runtime import deps
from chalicelib.runtime.control_plane import ControlPlane


def _view(app: Chalice, route: Route) -> Callable[..., Response]:
    def view(**params: str) -> Response:
        incoming = app.current_request
        request = dispatch.Request(
            method=route.method,
            path=incoming.path,
            query={name: values[-1] for name, values in (incoming.to_original_event()[_QUERY] or {}).items() if values},
            headers=incoming.headers,
            body=incoming.raw_body,
        )
        reply = dispatch.serve(deps.plane(), route, params, request)
        text = not reply.headers["Content-Type"].startswith(_BINARY)
        return Response(reply.body.decode() if text else reply.body, dict(reply.headers), reply.status)

    return view


_QUERY = "multiValueQueryStringParameters"
_BINARY = ("application/octet-stream", "application/x-tar", "application/zip")

app = ControlPlane(app_name="dstack", configure_logs=False)
app.api.binary_types.append("multipart/form-data")
for _number, _route in enumerate(ROUTES):
    app.route(_route.path, methods=[_route.method], content_types=[], name=f"route{_number}")(_view(app, _route))


@app.schedule("rate(1 minute)")  # type: ignore[untyped-decorator]
def reconcile(event: Any) -> Any:
    from functions import reconcile as function

    return function.handler(event.to_dict(), event.context)


@app.schedule("rate(1 minute)")  # type: ignore[untyped-decorator]
def reap_idle(event: Any) -> Any:
    from functions import reap_idle as function

    return function.handler(event.to_dict(), event.context)


@app.schedule("rate(5 minutes)")  # type: ignore[untyped-decorator]
def sweep_orphans(event: Any) -> Any:
    from functions import sweep_orphans as function

    return function.handler(event.to_dict(), event.context)
