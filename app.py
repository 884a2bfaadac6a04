"""The Lambda behind API Gateway, and the scheduled functions deployed with it.

Importing this module creates no client and reads no setting; the first request builds the control plane. The scheduled
functions are here because Chalice deploys what its app names, each with its own policy. None of them needs a provider's
SDK. The functions that do, and those with other triggers, are declared in `infra/`.
"""

from __future__ import annotations

from typing import Any

from chalicelib.runtime.chalice_app import ControlPlane
from chalicelib.usecases.context import Plane


def plane() -> Plane:
    from chalicelib.runtime import lambda_

    return lambda_.root().plane


app = ControlPlane(plane)


@app.schedule("rate(1 minute)")  # type: ignore[untyped-decorator]
def reconcile(event: Any) -> Any:
    from functions import reconcile as function

    return function.handler(event.to_dict(), event.context)


@app.schedule("rate(2 minutes)")  # type: ignore[untyped-decorator]
def reap_idle(event: Any) -> Any:
    from functions import reap_idle as function

    return function.handler(event.to_dict(), event.context)


@app.schedule("rate(5 minutes)")  # type: ignore[untyped-decorator]
def sweep_orphans(event: Any) -> Any:
    from functions import sweep_orphans as function

    return function.handler(event.to_dict(), event.context)


@app.schedule("rate(10 minutes)")  # type: ignore[untyped-decorator]
def erase_unused(event: Any) -> Any:
    from functions import erase_unused as function

    return function.handler(event.to_dict(), event.context)
