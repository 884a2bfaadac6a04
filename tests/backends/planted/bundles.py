"""Faults of backends with machines that are bought together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from chalicelib.backends.spi import CreateRequest, Machine
from chalicelib.domain.bundles import WORKER, worker
from chalicelib.domain.instances import Handle
from chalicelib.errors import Gone
from tests.backends.planted.port import PortFault, forgotten, noticed_by, other_request


def first_of(handles: Sequence[Handle]) -> list[Handle]:
    return [each.with_(data={name: value for name, value in each.data.items() if name != WORKER}) for each in handles]


@other_request("each_machine_of_a_bundle_has_a_token_of_its_own")
def gives_all_the_first_ones_token(request: CreateRequest) -> CreateRequest:
    return replace(request, bundle=request.bundle[:1] * len(request.bundle))


@other_request("a_bundle_that_is_requested_again_is_adopted")
def buys_a_bundle_anew(request: CreateRequest) -> CreateRequest:
    return forgotten(request)  # type: ignore[no-any-return]


@noticed_by("one_purchase_makes_every_machine_of_a_bundle")
class DescribesTheFirst(PortFault):
    def describe(self, handles: Sequence[Handle]) -> Machine:
        return self.inner.describe(first_of(handles))  # type: ignore[no-any-return]


@noticed_by("the_end_of_a_bundle_is_the_end_of_all", "a_lost_bundle_is_gone_for_each_machine")
class ShowsTheOthersForEver(PortFault):
    def describe(self, handles: Sequence[Handle]) -> Machine:
        try:
            return self.inner.describe(handles)  # type: ignore[no-any-return]
        except Gone:
            if any(map(worker, handles)):
                return Machine("running", "still", "10.0.0.1")
            raise


@noticed_by("a_bundle_is_taken_back_as_a_whole")
class WarnsTheFirst(PortFault):
    def describe(self, handles: Sequence[Handle]) -> Machine:
        found = self.inner.describe(handles)
        return replace(found, interrupted=found.interrupted and not any(map(worker, handles)))


@noticed_by("bundles_are_sold_where_the_facts_say_so")
class ForgetsTheBundles(PortFault):
    @property
    def facts(self):  # type: ignore[no-untyped-def]
        return self.inner.facts.with_(bundles=not self.inner.facts.bundles)
