"""Clouds that are served where the deployed functions call them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.e2e.clouds.cloud import Cloud, cloud_of


@dataclass(frozen=True)
class Sold:
    cloud: Cloud
    url: str


@contextmanager
def serving(names: Sequence[str]) -> Iterator[Mapping[str, Sold]]:
    with ExitStack() as stack:
        clouds = {name: cloud_of(name) for name in names}
        yield {name: Sold(each, stack.enter_context(each.serving())) for name, each in clouds.items()}


def endpoints(sold: Mapping[str, Sold]) -> str:
    return ",".join(f"{name}={each.url}" for name, each in sold.items())
