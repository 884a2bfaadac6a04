"""Calls to providers: effects, and the sweep, the refresh and the check of one account. The only handler that needs
providers' SDKs: each artefact that has any has a function of its own for it."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_, provider_functions
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    """`provider_functions.py` lists the events."""
    return provider_functions.perform(root or lambda_.root(), event)
