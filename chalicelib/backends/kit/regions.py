"""Calls to every region at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from chalicelib.domain.instances import Handle
from chalicelib.errors import BackendError

T = TypeVar("T")
Item = TypeVar("Item")
AT_ONCE = 12  # regions called at the same time


def region_in(handle: Handle) -> str:
    """Of what it is the handle of; empty: it has none."""
    return handle.data.get("region", "")


def everywhere(regions: Sequence[str], ask: Callable[[str], T]) -> list[T]:
    """The result for each region. Raises what any of them raises."""
    if len(regions) == 1:
        return [ask(regions[0])]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(ask, regions))


def listed_everywhere(regions: Sequence[str], listed: Callable[[str], Iterable[T]]) -> Iterator[T]:
    """All that there is in these regions. Raises what any of them raises."""
    for found in everywhere(regions, lambda region: list(listed(region))):
        yield from found


def by_region(
    items: Sequence[Item],
    region_of: Callable[[Item], str],
    ask: Callable[[str, Sequence[Item]], Sequence[T | BackendError]],
) -> list[T | BackendError]:
    """The result for each item, in the items' order. `ask` returns the results for one region's items. An exception is
    the result for each of these, so a region that doesn't respond doesn't affect another."""
    regions: dict[str, list[Item]] = {}
    for item in items:
        regions.setdefault(region_of(item), []).append(item)

    def in_region(region: str) -> Sequence[T | BackendError]:
        try:
            return ask(region, regions[region])
        except BackendError as error:
            return [error] * len(regions[region])

    answers = dict(zip(regions, map(iter, everywhere([*regions], in_region)), strict=True))
    return [next(answers[region_of(item)]) for item in items]


def outcomes(items: Sequence[Item], ask: Callable[[Item], T]) -> list[T | BackendError]:
    """What `ask` returns or raises for each."""
    found: list[T | BackendError] = []
    for item in items:
        try:
            found.append(ask(item))
        except BackendError as error:
            found.append(error)
    return found
