"""Pages of other origins that call a model: a browser asks first whether they may, and they may, as with OpenAI's API.

Nothing is given away by that: a page has no token that its user didn't give it.
"""

from __future__ import annotations

from chalicelib.serving.exchange import Exchange

_ANY = ("access-control-allow-origin", "*")
READABLE = ((b"access-control-allow-origin", b"*"),)  # for any page, as headers of a response
_METHODS = ("access-control-allow-methods", "GET, POST, PUT, PATCH, DELETE, OPTIONS")
_AGE = ("access-control-max-age", "600")


def asks_first(exchange: Exchange) -> bool:
    """Is this a browser's question whether a page of another origin may call?"""
    return exchange.method == "OPTIONS" and bool(
        exchange.header("origin") and exchange.header("access-control-request-method")
    )


async def allow(exchange: Exchange) -> None:
    headers = exchange.header("access-control-request-headers") or "*"
    await exchange.answer(204, [_ANY, _METHODS, _AGE, ("access-control-allow-headers", headers)])
