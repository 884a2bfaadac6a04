"""The sweep, on a schedule: releases resources that have our tag but no owner, and settles instances whose machines are
gone."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    done = (root or lambda_.root()).sweeper.run()
    return {"given_back": [f"{each.handle.kind} {each.handle.id}" for each in done.given_back], "lost": done.lost}
