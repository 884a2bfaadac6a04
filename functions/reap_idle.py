"""Passes over the due instances: reaps idle ones, judges silent ones, repeats terminations. On a separate schedule, so
that machines are released even while hints for everything else pile up."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    done = (root or lambda_.root()).reconciler.run(kinds=("instance",))
    return {"units": done.units, "steps": done.steps, "failed": done.failed}
