"""Passes over the instances that are due: idle ones to reap, silent ones to judge, ends to repeat. On a schedule of its
own, so that machines are given back even while the hints for everything else pile up."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    done = (root or lambda_.root()).reconciler.run(kinds=("instance",))
    return {"units": done.units, "steps": done.steps, "failed": done.failed}
