"""What the engine and the use cases need from the outside, as protocols. Only `runtime` names implementations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from chalicelib.domain.instants import Micros
from chalicelib.planning.plan import Effect

if TYPE_CHECKING:
    from chalicelib.planning.offers import OfferBook


class Clock(Protocol):
    def now(self) -> Micros: ...


class Wake(Protocol):
    def __call__(self, units: Iterable[str]) -> None:
        """Look at these units soon. A hint: losing it costs latency, never correctness."""


class Effects(Protocol):
    def submit(self, effect: Effect) -> None:
        """Execute a committed effect, now or soon, here or elsewhere (a thread, another Lambda). Losing it is repaired
        by the next pass over its instance, once `act_until` has passed."""


class News(Protocol):
    def __call__(self, instance_ids: Iterable[str]) -> None:
        """Something these instances' agents wait for has changed: ends their long polls. A hint."""


class Catalog(Protocol):
    def book(self, project_id: str) -> OfferBook:
        """What could be bought for this project, as of the last refresh. Never asks a cloud."""
