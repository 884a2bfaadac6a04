"""Deletes what is no longer used. It runs on a schedule and does a bounded amount of work each time."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


@lambda_.only_if_deciding
def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    return asdict((root or lambda_.root()).erase())
