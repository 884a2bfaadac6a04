"""The provider's side of the conformance suite, for every fake: what the suite arranges is the fake's script.

A provider's own class says which operations the calls of a backend are, how its errors look, and which counters its
offers take; and it reads from the books what only it has: prices, boot scripts, tags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offers import Offer
from tests.backends.conformance.provider import Call, Fails
from tests.backends.fakes.books import GONE, Resource
from tests.backends.fakes.script import Answer, Fault
from tests.backends.fakes.server import Fake


class ScriptedProvider:
    secrets: Sequence[str] = ()
    operations: ClassVar[Mapping[Call, str]]  # the first that a call of the backend makes, as a pattern
    errors: ClassVar[Mapping[Fails, Answer]]
    kinds: ClassVar[Sequence[str]]  # of resources that cost money, or that nobody may leave behind
    page_token: ClassVar[str]  # the parameter that asks for a further page

    def __init__(self, fake: Fake) -> None:
        self.fake = fake

    def capacity_counters(self, offer: Offer, zone: str = "") -> Sequence[str]:
        """The counters of what is left of it: in a zone, or everywhere in its region."""
        raise NotImplementedError

    def quota_of(self, offer: Offer) -> tuple[str, int]:
        """The counter of its quota, and how much of that one machine takes."""
        raise NotImplementedError

    # --- what the suite arranges -------------------------------------------------------------------------------------

    def existing(self) -> set[str]:
        return {each.id for each in self.fake.books.existing() if each.kind in self.kinds}

    def fail(self, call: Call, error: Fails, *, when: Literal["before", "after"] = "before", times: int = 1) -> None:
        self._fault(Fault(self.operations[call], self.errors[error], when, times))

    def page_fails(self) -> None:
        further = Fault(
            self.operations["list"], self.errors["Transient"], fits=lambda call: self.page_token in call.query
        )
        self._fault(further)

    def region_down(self, region: str) -> None:
        """Of a provider that lists all regions in one call."""
        self.fail("list", "Transient")

    def invisible_for(self, seconds: float) -> None:
        self.fake.script.lag = round(seconds * SECOND)

    def pages_of(self, size: int) -> None:
        self.fake.script.page = size

    def none_left(self, offer: Offer) -> None:
        self._full(self.capacity_counters(offer))

    def zone_is_full(self, offer: Offer, zone: str, *, full: bool = True) -> None:
        if full:
            self._full(self.capacity_counters(offer, zone))
        else:
            for counter in self.capacity_counters(offer, zone):
                self.fake.script.limits.pop(counter, None)

    def quota(self, offer: Offer, machines: int) -> None:
        counter, each = self.quota_of(offer)
        self.fake.script.limits[counter] = machines * each

    def lost(self, handles: Sequence[Handle]) -> None:
        self.machine(handles).goes(self.fake.now(), (0, GONE))

    def machine(self, handles: Sequence[Handle]) -> Resource:
        ids = {handle.id for handle in handles if handle.kind == "vm"}
        return next(each for each in self.fake.books.existing() if each.id in ids)

    def _full(self, counters: Sequence[str]) -> None:
        for counter in counters:
            self.fake.script.limits[counter] = self.fake.books.used(counter)

    def _fault(self, fault: Fault) -> None:
        self.fake.script.faults.append(fault)
