"""The sweep: what bears our tag in a cloud and belongs to nobody is given back, and instances whose machines are gone
are settled. On a schedule."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    done = (root or lambda_.root()).sweeper.run()
    return {"given_back": [f"{each.handle.kind} {each.handle.id}" for each in done.given_back], "lost": done.lost}
