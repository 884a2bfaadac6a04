"""Erases what nobody uses any more, on a schedule: a bounded turn each time."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    return asdict((root or lambda_.root()).erase())
