"""The cache of what never changes."""

from __future__ import annotations

from chalicelib.store.cache import Lru


def test_the_least_recently_used_is_made_again_and_nothing_else() -> None:
    cache, made = Lru[str](2), list[str]()

    def get(key: str) -> str:
        return cache.get(key, lambda: made.append(key) or key.upper())

    assert [get(key) for key in "abab"] == ["A", "B", "A", "B"] and made == ["a", "b"]
    get("a")
    get("c")  # b goes
    assert (cache.peek("a"), cache.peek("b"), cache.peek("c")) == ("A", None, "C")
    get("a"), get("c"), get("b")
    assert made == ["a", "b", "c", "b"]
