"""CORS for models: pages of every origin may call them, as with OpenAI's API.

That is safe, because a page has no token that its user didn't give it.
"""

from __future__ import annotations

from chalicelib.serving.exchange import Exchange

_ANY = ("access-control-allow-origin", "*")
READABLE = ((b"access-control-allow-origin", b"*"),)  # headers that let every page read a response
_METHODS = ("access-control-allow-methods", "GET, POST, PUT, PATCH, DELETE, OPTIONS")
_AGE = ("access-control-max-age", "600")


def is_preflight(exchange: Exchange) -> bool:
    """Whether this is a browser's preflight request."""
    return exchange.method == "OPTIONS" and bool(
        exchange.header("origin") and exchange.header("access-control-request-method")
    )


async def allow(exchange: Exchange) -> None:
    headers = exchange.header("access-control-request-headers") or "*"
    await exchange.answer(204, [_ANY, _METHODS, _AGE, ("access-control-allow-headers", headers)])
