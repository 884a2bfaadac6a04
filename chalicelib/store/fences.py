"""The fence of a store: read, and moved on under its version."""

from __future__ import annotations

from chalicelib.domain.fences import Fence
from chalicelib.domain.keys import FENCE
from chalicelib.store import nouns
from chalicelib.store.port import Store


def fence_of(store: Store) -> Fence | None:
    return nouns.find(store, Fence, FENCE)


def decides(store: Store) -> bool:
    fence = fence_of(store)
    return fence is None or fence.decides


def save(store: Store, fence: Fence) -> Fence:
    """Raises Conflict if somebody else has changed it."""
    store.commit([nouns.put(fence)])
    found = fence_of(store)
    assert found is not None, "it was just written"
    return found
