"""Lists that come in pages, each of which begins after the last item of the one before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dstack_serverless.sdk.core import Core
from dstack_serverless.sdk.flow import Flow, Item, Request

PAGE = 100


@dataclass(frozen=True)
class Order:
    """What a list is ordered by: a date and an id. Each is a key of its items, and one of the bodies of its calls."""

    at: str = "created_at"
    after: str = "prev_created_at"
    id: str = "id"
    after_id: str = "prev_id"


BY_CREATION = Order()


def pages(
    core: Core, call: Callable[..., Request[Any]], limit: int | None, order: Order = BY_CREATION, **named: Any
) -> Flow[None]:
    """Yields the items of a list, `limit` at most. `call`: the function for its pages; `named`: what else it takes."""
    after: dict[str, Any] = {}
    left = limit
    while left is None or left > 0:
        count = PAGE if left is None else min(left, PAGE)
        page = yield from core.ask(call(limit=count, **named, **after))
        for item in page:
            yield Item(item)
        if len(page) < count:
            return
        left = None if left is None else left - count
        after = {order.after: page[-1][order.at], order.after_id: page[-1][order.id]}
