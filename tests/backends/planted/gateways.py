"""Faults of containers that gateways run in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from chalicelib.backends.spi import CreateRequest, Machine
from chalicelib.domain.instances import Handle
from chalicelib.errors import Gone
from tests.backends.planted.port import PortFault, case, forgotten, noticed_by


@noticed_by("a_gateways_container_is_pending_until_it_has_its_address")
class RunsWithoutAnAddress(PortFault):
    def describe(self, handles: Sequence[Handle]) -> Machine:
        machine: Machine = self.inner.describe(handles)
        return replace(machine, state="running")


NEVER = "an_address_that_never_comes_is_a_reason"


@noticed_by(case(NEVER, why=""), case(NEVER, why="the account's quota of addresses is used up"))
class AwaitsItsAddressForEver(PortFault):
    def describe(self, handles: Sequence[Handle]) -> Machine:
        try:
            machine: Machine = self.inner.describe(handles)
        except Gone as gone:
            if "no address" in str(gone):
                return Machine("pending")
            raise
        return machine


@noticed_by("a_gateways_container_that_is_cut_short_is_completed_once")
class DoublesTheGateway(PortFault):
    def gateway(self, request: CreateRequest) -> Iterator[Handle]:
        yield from self.inner.create_gateway(forgotten(request))


@noticed_by("an_address_is_free_again_before_its_gateway_is_gone")
class LeavesTheAddressBehind(PortFault):
    """What isn't the container is said to be gone."""

    def terminate(self, handle: Handle) -> None:
        if handle.kind != "vm":
            raise Gone("there is no such thing")
        self.inner.terminate(handle)
