"""Clouds that are served where the deployed functions call them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from chalicelib.backends.spi import Backend, CreateRequest
from chalicelib.errors import Throttled
from tests.backends.conformance.requests import request_for
from tests.e2e.clouds.cloud import Cloud, cloud_of
from tests.harness.server import until

SOLD = {"clouds": "lambda", "gcp": "gcp", "nebius": "nebius"}  # of each artefact, a cloud that sells machines


@dataclass(frozen=True)
class Sold:
    cloud: Cloud
    url: str

    def bought_by(self, install: str) -> set[str]:
        """A machine whose tags name that install, and an instance that it doesn't know."""
        before, backend = self.cloud.owned(), self.cloud.backend(self.url)
        with closing(backend):
            request = request_for(self.cloud.offer(backend), install=install)
            until("the machine", lambda: _created(backend, request), every=1)
        return self.cloud.owned() - before


def _created(backend: Backend, request: CreateRequest) -> bool:
    """Requested anew, as by the engine, where an account may call only now and then."""
    try:
        return bool(list(backend.create(request)))
    except Throttled:
        return False


@contextmanager
def serving(names: Iterable[str]) -> Iterator[Mapping[str, Sold]]:
    with ExitStack() as stack:
        clouds = {name: cloud_of(name) for name in names}
        yield {name: Sold(each, stack.enter_context(each.serving())) for name, each in clouds.items()}


def endpoints(sold: Mapping[str, Sold]) -> str:
    return ",".join(f"{name}={each.url}" for name, each in sold.items())
