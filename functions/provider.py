"""Calls to providers: effects, and the sweep, refresh and check of one account. This is the only handler that needs
providers' SDKs. Each artefact with SDKs has its own function with this handler."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_, provider_functions
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    """`provider_functions.py` lists the events."""
    return provider_functions.perform(root or lambda_.root(), event)
